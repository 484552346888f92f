"""NoSchedule taints that follow a node's conditions, as kube-controller-manager's node lifecycle sets them. Pure."""

from __future__ import annotations

from torchyard.api.objects import Object

_PREFIX = "node.kubernetes.io/"
NOT_READY = f"{_PREFIX}not-ready"
_UNSCHEDULABLE = f"{_PREFIX}unschedulable"
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): f"{_PREFIX}unreachable",
    ("MemoryPressure", "True"): f"{_PREFIX}memory-pressure",
    ("DiskPressure", "True"): f"{_PREFIX}disk-pressure",
    ("PIDPressure", "True"): f"{_PREFIX}pid-pressure",
    ("NetworkUnavailable", "True"): f"{_PREFIX}network-unavailable",
}
_MANAGED_KEYS = frozenset((_UNSCHEDULABLE, *_BY_CONDITION.values()))


def taints(node: Object) -> list[Object]:
    """The taints a node should have: those set by others, and one for each condition that keeps pods away.

    A node without a Ready condition keeps the taint it was created with.
    """
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    present = spec.get("taints") or []
    if not any(condition.get("type") == "Ready" for condition in conditions):
        return list(present)
    desired_keys = [
        key for condition in conditions if (key := _BY_CONDITION.get((condition.get("type"), condition.get("status"))))
    ]
    if spec.get("unschedulable"):
        desired_keys.append(_UNSCHEDULABLE)
    result = [taint for taint in present if not _is_managed(taint) or taint["key"] in desired_keys]
    present_keys = {taint["key"] for taint in result if _is_managed(taint)}
    return result + [{"key": key, "effect": "NoSchedule"} for key in desired_keys if key not in present_keys]


def _is_managed(taint: Object) -> bool:
    return bool(taint.get("effect") == "NoSchedule" and taint.get("key") in _MANAGED_KEYS)
