"""What a workload asks for, apart from who asks and when: workloads of one shape are admitted or refused alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import orjson

from torchyard.api.objects import Object
from torchyard.core.queue.resources import pod_requests


@dataclass(frozen=True, eq=False)
class PodSet:
    name: str
    count: int
    least: int | None  # admitted with fewer pods, but not with fewer than these
    requests: Mapping[str, int]  # of one pod
    selector: Mapping[str, str]
    terms: tuple[Object, ...]  # of the required node affinity
    tolerations: tuple[Object, ...]

    @property
    def total(self) -> dict[str, int]:
        return {name: amount * self.count for name, amount in self.requests.items()}


@dataclass(frozen=True, eq=False)
class Shape:
    """Shared by all workloads that ask for the same: compared by identity."""

    pod_sets: tuple[PodSet, ...]
    key: bytes  # the same for the same shape in every process: ties are broken by it

    @property
    def partial(self) -> PodSet | None:
        """The pod set that may be smaller than asked."""
        return next((one for one in self.pod_sets if one.least is not None and one.least < one.count), None)


_KNOWN: WeakValueDictionary[bytes, Known] = WeakValueDictionary()


class Known:
    """Makes a shape weakly referable under the bytes it was read from, with the pod sets that had it first."""

    __slots__ = ("__weakref__", "pod_sets", "shape")

    def __init__(self, shape: Shape, pod_sets: Sequence[Object]) -> None:
        self.shape, self.pod_sets = shape, pod_sets


def shape_of(pod_sets: Sequence[Object]) -> Known:
    """The shape of a workload's pod sets; hold on to the answer as long as the shape is needed."""
    asked = [_relevant(one) for one in pod_sets]
    key = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = Known(Shape(tuple(_pod_set(one) for one in asked), key), pod_sets)
    return known


def _relevant(pod_set: Object) -> Object:
    spec = (pod_set.get("template") or {}).get("spec") or {}
    kept = ("nodeSelector", "tolerations", "affinity", "overhead", "resources")
    containers = {
        kind: [{"resources": one.get("resources"), "restartPolicy": one.get("restartPolicy")} for one in spec[kind]]
        for kind in ("containers", "initContainers")
        if spec.get(kind)
    }
    found = {name: spec[name] for name in kept if spec.get(name)}
    return {
        "name": pod_set.get("name") or "main",
        "count": pod_set.get("count", 1),
        "minCount": pod_set.get("minCount"),
        "spec": {**found, **containers},
    }


def _pod_set(asked: Object) -> PodSet:
    spec = asked["spec"]
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return PodSet(
        asked["name"],
        asked["count"],
        asked["minCount"],
        pod_requests(spec),
        spec.get("nodeSelector") or {},
        tuple(required.get("nodeSelectorTerms") or ()),
        tuple(spec.get("tolerations") or ()),
    )
