"""What a workload needs to be scheduled, apart from its identity and age.

Workloads with the same requirements are scheduling-equivalent: the scheduler admits or refuses all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import orjson

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue.pod_defaults import NO_DEFAULTS, PodDefaults
from torchyard.core.queue.resources import pod_requests

_SPEC_FIELDS = ("nodeSelector", "tolerations", "affinity", "overhead", "resources", "runtimeClassName")
_NO_PODS_RECLAIMABLE: Mapping[str, int] = {}


@dataclass(frozen=True, eq=False)
class PodSet:
    name: str
    count: int
    min_count: int | None  # partial admission: fewer pods are enough, but not fewer than these
    requests: Mapping[str, int]  # of one pod
    node_selector: Mapping[str, str]
    node_selector_terms: tuple[Object, ...]  # of the required node affinity
    tolerations: tuple[Object, ...]


@dataclass(frozen=True, eq=False)
class SchedulingRequirements:
    """Interned: one instance for all workloads that need the same, so equality is identity."""

    pod_sets: tuple[PodSet, ...]
    invalid: str  # why its pods could not be created; empty if they can
    key: bytes  # the same in every process, so it can name things and break ties

    @property
    def reducible_pod_set(self) -> PodSet | None:
        """The pod set that partial admission may make smaller."""
        reducible = (
            pod_set for pod_set in self.pod_sets if pod_set.min_count is not None and pod_set.min_count < pod_set.count
        )
        return next(reducible, None)

    def least_request(self, resource: str) -> int:
        """The least that it may need in one flavor of a resource: what one pod set requests, with the fewest pods."""
        counts = (
            (pod_set, pod_set.count if pod_set.min_count is None else pod_set.min_count) for pod_set in self.pod_sets
        )
        requests = (count * pod_set.requests.get(resource, 0) for pod_set, count in counts)
        return min((amount for amount in requests if amount > 0), default=1)


_INTERNED: WeakValueDictionary[bytes, InternedPodSets] = WeakValueDictionary()


class InternedPodSets:
    """Keeps requirements weakly referable by their key, with the pod sets that were first read with them."""

    __slots__ = ("__weakref__", "pod_sets", "requirements")

    def __init__(self, requirements: SchedulingRequirements, pod_sets: Sequence[Object]) -> None:
        self.requirements, self.pod_sets = requirements, pod_sets


def intern_pod_sets(
    pod_sets: Sequence[Object],
    defaults: PodDefaults = NO_DEFAULTS,
    reclaimable: Mapping[str, int] = _NO_PODS_RECLAIMABLE,
) -> InternedPodSets:
    """The requirements of a workload's pod sets. The caller keeps the result for as long as it needs them.

    `defaults`: what is added to its pods when they are created. `reclaimable`: pods that are not needed any more, by
    pod set.
    """
    relevant = [_relevant_fields(pod_set, reclaimable) for pod_set in pod_sets]
    key = defaults.key + orjson.dumps(relevant, option=orjson.OPT_SORT_KEYS)
    interned = _INTERNED.get(key)
    if interned is None:
        effective = [{**fields, "spec": defaults.apply(fields["spec"])} for fields in relevant]
        invalid = defaults.invalid_message(fields["spec"] for fields in effective)
        requirements = SchedulingRequirements(tuple(_parse_pod_set(fields) for fields in effective), invalid, key)
        interned = _INTERNED[key] = InternedPodSets(requirements, pod_sets)
    return interned


def _relevant_fields(pod_set: Object, reclaimable: Mapping[str, int]) -> Object:
    """The fields of a pod set that scheduling depends on."""
    spec = (pod_set.get("template") or {}).get("spec") or {}
    name, count = pod_set.get("name") or names.MAIN, pod_set.get("count", 1)
    containers = {
        field: [
            {"resources": container.get("resources"), "restartPolicy": container.get("restartPolicy")}
            for container in spec[field]
        ]
        for field in ("containers", "initContainers")
        if spec.get(field)
    }
    fields = {name: spec[name] for name in _SPEC_FIELDS if spec.get(name)}
    return {
        "name": name,
        "count": max(0, count - reclaimable.get(name, 0)),
        "minCount": pod_set.get("minCount"),
        "spec": {**fields, **containers},
    }


def _parse_pod_set(fields: Object) -> PodSet:
    spec = fields["spec"]
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return PodSet(
        name=fields["name"],
        count=fields["count"],
        min_count=fields["minCount"],
        requests=pod_requests(spec),
        node_selector=spec.get("nodeSelector") or {},
        node_selector_terms=tuple(required.get("nodeSelectorTerms") or ()),
        tolerations=tuple(spec.get("tolerations") or ()),
    )
