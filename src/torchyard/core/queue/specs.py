"""ClusterQueues and cohorts as the core sees them: quotas in thousandths, policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue.quota import Quota
from torchyard.core.queue.resources import FlavorResource, milli


@dataclass(frozen=True)
class Group:
    resources: frozenset[str]
    flavors: tuple[str, ...]  # in the order they are tried


@dataclass(frozen=True)
class Preemption:
    within: str = names.NEVER
    reclaim: str = names.NEVER
    borrow: bool = False
    threshold: int | None = None

    @classmethod
    def of(cls, spec: Object) -> Preemption:
        borrow = spec.get("borrowWithinCohort") or {}
        return cls(
            spec.get("withinClusterQueue") or names.NEVER,
            spec.get("reclaimWithinCohort") or names.NEVER,
            (borrow.get("policy") or names.NEVER) != names.NEVER,
            borrow.get("maxPriorityThreshold"),
        )


@dataclass(frozen=True)
class Check:
    name: str
    flavors: frozenset[str]  # empty: whatever the flavor


@dataclass(frozen=True)
class Queue:
    name: str
    cohort: str
    groups: tuple[Group, ...]
    quotas: Mapping[FlavorResource, Quota]
    is_strict: bool
    stop: str
    preemption: Preemption
    stop_at_borrowing: bool
    stop_at_preemption: bool
    prefer_preemption: bool
    selector: Object | None
    checks: tuple[Check, ...]
    is_local: bool  # made by the one-machine plane itself
    is_terminating: bool

    @classmethod
    def of(cls, obj: Object) -> Queue:
        spec, metadata = obj.get("spec") or {}, obj["metadata"]
        groups, quotas = read_groups(spec)
        fungibility = spec.get("flavorFungibility") or {}
        rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
        return cls(
            name=metadata["name"],
            cohort=spec.get("cohortName") or "",
            groups=groups,
            quotas=quotas,
            is_strict=spec.get("queueingStrategy") == names.STRICT,
            stop=spec.get("stopPolicy") or names.NO_STOP,
            preemption=Preemption.of(spec.get("preemption") or {}),
            stop_at_borrowing=fungibility.get("whenCanBorrow") != names.TRY_NEXT,
            stop_at_preemption=fungibility.get("whenCanPreempt") == names.MAY_STOP,
            prefer_preemption=fungibility.get("preference") == "PreemptionOverBorrowing",
            selector=spec.get("namespaceSelector"),
            checks=tuple(Check(one["name"], frozenset(one.get("onFlavors") or ())) for one in rules),
            is_local=names.LOCAL in (metadata.get("labels") or {}),
            is_terminating=bool(metadata.get("deletionTimestamp")),
        )

    def group_of(self, resource: str) -> Group | None:
        return next((one for one in self.groups if resource in one.resources), None)

    @property
    def flavors(self) -> list[str]:
        return [name for group in self.groups for name in group.flavors]


def read_groups(spec: Object) -> tuple[tuple[Group, ...], dict[FlavorResource, Quota]]:
    groups: list[Group] = []
    quotas: dict[FlavorResource, Quota] = {}
    for group in spec.get("resourceGroups") or ():
        groups.append(Group(frozenset(group["coveredResources"]), tuple(one["name"] for one in group["flavors"])))
        for flavor in group["flavors"]:
            for one in flavor["resources"]:
                limits = (one.get("borrowingLimit"), one.get("lendingLimit"))
                borrowing, lending = (None if limit is None else milli(limit) for limit in limits)
                quotas[flavor["name"], one["name"]] = Quota(milli(one["nominalQuota"]), borrowing, lending)
    return tuple(groups), quotas
