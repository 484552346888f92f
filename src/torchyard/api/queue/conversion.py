"""Between the two versions: the older one's names for the same things. Stored is the newer one."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.objects import Object
from torchyard.api.queue import names

Conversion = Callable[[Object], Object]

_KUEUE = (names.GROUP, names.PRIORITY_CLASS.kind)
_SOURCES = {
    f"{names.GROUP}/workloadpriorityclass": _KUEUE,
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_OF = {pair: source for source, pair in _SOURCES.items()}
_STOPPING = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}


def _part(obj: Object, name: str) -> Object:
    """A copy of a part that may be changed, in the object from now on; an empty one where there is none."""
    part = obj.get(name)
    if not isinstance(part, dict):
        return {}
    obj[name] = dict(part)
    changed: Object = obj[name]
    return changed


def _rename(part: Object, old: str, new: str) -> None:
    if old in part:
        part.setdefault(new, part[old])
        del part[old]


def _queue_to(obj: Object) -> Object:
    spec = _part(obj, "spec")
    _rename(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if checks and not spec.get("admissionChecksStrategy"):
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": one} for one in checks]}
    fungibility = _part(spec, "flavorFungibility")
    for field, own in _STOPPING.items():
        if fungibility.get(field) == own:
            fungibility[field] = names.MAY_STOP
    return obj


def _queue_from(obj: Object) -> Object:
    spec = _part(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    fungibility = _part(spec, "flavorFungibility")
    for field, own in _STOPPING.items():
        if fungibility.get(field) == names.MAY_STOP:
            fungibility[field] = own
    return obj


def _local_to(obj: Object) -> Object:
    status = _part(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)
    return obj


def _local_from(obj: Object) -> Object:
    _rename(_part(obj, "status"), "flavorsUsage", "flavorUsage")
    return obj


def _workload_to(obj: Object) -> Object:
    spec = _part(obj, "spec")
    name, source = spec.pop("priorityClassName", ""), spec.pop("priorityClassSource", "")
    if name and source in _SOURCES:
        group, kind = _SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    _rename(_part(obj, "status"), "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return obj


def _workload_from(obj: Object) -> Object:
    spec = _part(obj, "spec")
    reference = spec.pop("priorityClassRef", None)
    if reference:
        spec["priorityClassName"] = reference["name"]
        spec["priorityClassSource"] = _SOURCE_OF.get((reference["group"], reference["kind"]), "")
    _rename(_part(obj, "status"), "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    return obj


def _same(obj: Object) -> Object:
    return obj


# By plural: from the older version to the stored one, and back.
CONVERSIONS: dict[str, tuple[Conversion, Conversion]] = {one.plural: (_same, _same) for one in names.KINDS} | {
    names.CLUSTER_QUEUE.plural: (_queue_to, _queue_from),
    names.LOCAL_QUEUE.plural: (_local_to, _local_from),
    names.WORKLOAD.plural: (_workload_to, _workload_from),
}
