"""The specs of ClusterQueues, cohorts and admission checks, parsed: quotas in thousandths, policies by name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.quantity import QuantityError
from torchyard.api.queue import names
from torchyard.core.queue.quota import Quota
from torchyard.core.queue.resources import FlavorResource, to_milli

_NANO = 10**9


@dataclass(frozen=True)
class ResourceGroup:
    resources: frozenset[str]
    flavors: tuple[str, ...]  # in the order they are tried


@dataclass(frozen=True)
class PreemptionPolicy:
    within_cluster_queue: str = names.NEVER
    reclaim_within_cohort: str = names.NEVER
    borrow_within_cohort: bool = False
    max_priority_threshold: int | None = None
    is_fair: bool = False  # preempts by dominant resource shares

    @property
    def may_preempt_while_borrowing(self) -> bool:
        return self.borrow_within_cohort or (self.is_fair and self.reclaim_within_cohort != names.NEVER)

    @classmethod
    def parse(cls, spec: Object, *, is_fair: bool = False) -> PreemptionPolicy:
        borrow = spec.get("borrowWithinCohort") or {}
        return cls(
            within_cluster_queue=spec.get("withinClusterQueue") or names.NEVER,
            reclaim_within_cohort=spec.get("reclaimWithinCohort") or names.NEVER,
            borrow_within_cohort=(borrow.get("policy") or names.NEVER) != names.NEVER,
            max_priority_threshold=borrow.get("maxPriorityThreshold"),
            is_fair=is_fair,
        )


@dataclass(frozen=True)
class AdmissionCheckRule:
    name: str
    flavors: frozenset[str]  # empty: applies to all flavors


@dataclass(frozen=True)
class ClusterQueueSpec:
    name: str
    cohort: str
    groups: tuple[ResourceGroup, ...]
    quotas: Mapping[FlavorResource, Quota]
    is_strict_fifo: bool
    stop_policy: str
    preemption: PreemptionPolicy
    stop_at_borrowing: bool  # flavorFungibility: a flavor that fits by borrowing ends the search
    stop_at_preemption: bool
    prefer_preemption: bool  # over borrowing
    namespace_selector: Object | None
    checks: tuple[AdmissionCheckRule, ...]
    is_local: bool  # created by the one-machine plane
    is_terminating: bool
    weight: float
    is_usage_based: bool  # LocalQueues that used less come first, with admission fair sharing

    @classmethod
    def parse(cls, obj: Object, *, is_fair: bool = False) -> ClusterQueueSpec:
        """`is_fair`: whether cohorts share by weight."""
        spec, metadata = obj.get("spec") or {}, obj["metadata"]
        groups, quotas = parse_resource_groups(spec)
        fungibility = spec.get("flavorFungibility") or {}
        rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
        return cls(
            name=metadata["name"],
            cohort=spec.get("cohortName") or "",
            groups=groups,
            quotas=quotas,
            is_strict_fifo=spec.get("queueingStrategy") == names.STRICT,
            stop_policy=spec.get("stopPolicy") or names.NO_STOP,
            preemption=PreemptionPolicy.parse(spec.get("preemption") or {}, is_fair=is_fair),
            stop_at_borrowing=fungibility.get("whenCanBorrow") != names.TRY_NEXT,
            stop_at_preemption=fungibility.get("whenCanPreempt") == names.MAY_STOP,
            prefer_preemption=fungibility.get("preference") == names.PREEMPTION_OVER_BORROWING,
            namespace_selector=spec.get("namespaceSelector"),
            checks=tuple(AdmissionCheckRule(rule["name"], frozenset(rule.get("onFlavors") or ())) for rule in rules),
            is_local=names.LOCAL in (metadata.get("labels") or {}),
            is_terminating=bool(metadata.get("deletionTimestamp")),
            weight=parse_weight(spec),
            is_usage_based=(spec.get("admissionScope") or {}).get("admissionMode") == names.USAGE_BASED,
        )

    def required_checks(self, flavors: Set[str] | None) -> list[str]:
        """The admission checks of a workload. `flavors`: those it uses; None: it has none yet.

        As in Kueue, a workload without flavors has no checks if any of them depends on the flavor.
        """
        if flavors is None:
            return [] if any(rule.flavors for rule in self.checks) else [rule.name for rule in self.checks]
        return [rule.name for rule in self.checks if not rule.flavors or rule.flavors & flavors]

    @property
    def flavors(self) -> list[str]:
        return [flavor for group in self.groups for flavor in group.flavors]


@dataclass(frozen=True)
class CohortSpec:
    parent: str
    quotas: Mapping[FlavorResource, Quota]
    weight: float = 1.0

    @classmethod
    def parse(cls, spec: Object) -> CohortSpec:
        return cls(spec.get("parentName") or "", parse_resource_groups(spec).quotas, parse_weight(spec))


class ResourceGroups(NamedTuple):
    groups: tuple[ResourceGroup, ...]
    quotas: dict[FlavorResource, Quota]


def parse_resource_groups(spec: Object) -> ResourceGroups:
    groups: list[ResourceGroup] = []
    quotas: dict[FlavorResource, Quota] = {}
    for group in spec.get("resourceGroups") or ():
        flavors = tuple(flavor["name"] for flavor in group["flavors"])
        groups.append(ResourceGroup(frozenset(group["coveredResources"]), flavors))
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                quotas[flavor["name"], resource["name"]] = Quota(
                    nominal=to_milli(resource["nominalQuota"]),
                    borrowing_limit=_optional_milli(resource.get("borrowingLimit")),
                    lending_limit=_optional_milli(resource.get("lendingLimit")),
                )
    return ResourceGroups(tuple(groups), quotas)


def parse_weight(spec: Object) -> float:
    """`fairSharing.weight` of a ClusterQueue, a Cohort or a LocalQueue."""
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return 1.0
    try:
        return max(0.0, quantity.parse(weight).nano / _NANO)
    except OverflowError:  # only in a cluster: Kueue has no limit
        return sys.float_info.max
    except QuantityError:  # stored by an earlier version, which did not validate it
        return 1.0


def _optional_milli(limit: str | int | None) -> int | None:
    return None if limit is None else to_milli(limit)
