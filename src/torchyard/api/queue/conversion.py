"""Conversion between v1beta1 and the stored v1beta2."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.objects import Object
from torchyard.api.queue import names

Conversion = Callable[[Object], Object]

_KUEUE_CLASS = (names.GROUP, names.PRIORITY_CLASS.kind)
PRIORITY_CLASS_SOURCES = {
    f"{names.GROUP}/workloadpriorityclass": _KUEUE_CLASS,
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_OF = {pair: source for source, pair in PRIORITY_CLASS_SOURCES.items()}
_OLD_MAY_STOP = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}


def _part(obj: Object, name: str) -> Object:
    """Replace a part of an object by a copy that may be changed, and return it; an unattached one if there is none."""
    part = obj.get(name)
    if not isinstance(part, dict):
        return {}
    obj[name] = dict(part)
    copied: Object = obj[name]
    return copied


def _rename(part: Object, old: str, new: str) -> None:
    if old in part:
        part.setdefault(new, part[old])
        del part[old]


def _cluster_queue_to_stored(obj: Object) -> Object:
    spec = _part(obj, "spec")
    _rename(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if checks and not spec.get("admissionChecksStrategy"):
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    fungibility = _part(spec, "flavorFungibility")
    for field, old in _OLD_MAY_STOP.items():
        if fungibility.get(field) == old:
            fungibility[field] = names.MAY_STOP
    return obj


def _cluster_queue_to_old(obj: Object) -> Object:
    spec = _part(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    fungibility = _part(spec, "flavorFungibility")
    for field, old in _OLD_MAY_STOP.items():
        if fungibility.get(field) == names.MAY_STOP:
            fungibility[field] = old
    return obj


def _local_queue_to_stored(obj: Object) -> Object:
    status = _part(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)
    return obj


def _local_queue_to_old(obj: Object) -> Object:
    _rename(_part(obj, "status"), "flavorsUsage", "flavorUsage")
    return obj


def _workload_to_stored(obj: Object) -> Object:
    spec = _part(obj, "spec")
    name, source = spec.pop("priorityClassName", ""), spec.pop("priorityClassSource", "")
    if name and source:  # as in Kueue, a name without a source has no effect
        group, kind = PRIORITY_CLASS_SOURCES.get(source, (source, ""))  # validation refuses other sources
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    _rename(_part(obj, "status"), "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return obj


def _workload_to_old(obj: Object) -> Object:
    spec = _part(obj, "spec")
    reference = spec.pop("priorityClassRef", None)
    if reference:
        spec["priorityClassName"] = reference["name"]
        spec["priorityClassSource"] = _SOURCE_OF.get((reference["group"], reference["kind"]), "")
    _rename(_part(obj, "status"), "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    return obj


def _unchanged(obj: Object) -> Object:
    return obj


# By plural: to the stored version, and to v1beta1.
CONVERSIONS: dict[str, tuple[Conversion, Conversion]] = {
    kind.plural: (_unchanged, _unchanged) for kind in names.KINDS
} | {
    names.CLUSTER_QUEUE.plural: (_cluster_queue_to_stored, _cluster_queue_to_old),
    names.LOCAL_QUEUE.plural: (_local_queue_to_stored, _local_queue_to_old),
    names.WORKLOAD.plural: (_workload_to_stored, _workload_to_old),
}
