"""Taints that follow a node's conditions, as kube-controller-manager's node lifecycle keeps them. Pure."""

from __future__ import annotations

from torchyard.api.objects import Object

_PREFIX = "node.kubernetes.io/"
_UNSCHEDULABLE = f"{_PREFIX}unschedulable"
_BY_CONDITION = {
    ("Ready", "False"): f"{_PREFIX}not-ready",
    ("Ready", "Unknown"): f"{_PREFIX}unreachable",
    ("MemoryPressure", "True"): f"{_PREFIX}memory-pressure",
    ("DiskPressure", "True"): f"{_PREFIX}disk-pressure",
    ("PIDPressure", "True"): f"{_PREFIX}pid-pressure",
    ("NetworkUnavailable", "True"): f"{_PREFIX}network-unavailable",
}
_OURS = frozenset((_UNSCHEDULABLE, *_BY_CONDITION.values()))


def taints(node: Object) -> list[Object]:
    """The taints a node should have: what others put there, and one for each condition that keeps pods away.

    A node that has not said yet whether it is ready keeps the taint it was created with.
    """
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    present = spec.get("taints") or []
    if not any(one.get("type") == "Ready" for one in conditions):
        return list(present)
    wanted = [key for one in conditions if (key := _BY_CONDITION.get((one.get("type"), one.get("status"))))]
    if spec.get("unschedulable"):
        wanted.append(_UNSCHEDULABLE)
    kept = [one for one in present if not _is_ours(one) or one["key"] in wanted]
    known = {one["key"] for one in kept if _is_ours(one)}
    return kept + [{"key": key, "effect": "NoSchedule"} for key in wanted if key not in known]


def _is_ours(taint: Object) -> bool:
    return bool(taint.get("effect") == "NoSchedule" and taint.get("key") in _OURS)
