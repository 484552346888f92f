"""A node without heartbeats becomes Unknown, and a NoExecute taint evicts its pods. Pure."""

from __future__ import annotations

from torchyard.api.cluster import messages
from torchyard.api.objects import Object

# How long a node may send no heartbeat: kube-controller-manager's --node-monitor-grace-period.
GRACE_SECONDS = 50.0
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_NO_EXECUTE_TAINTS = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}


def ready_status(node: Object) -> str:
    """True, False or Unknown; empty if the node has no Ready condition."""
    return next((str(condition["status"]) for condition in _conditions(node) if condition["type"] == "Ready"), "")


def _conditions(node: Object) -> list[Object]:
    return (node.get("status") or {}).get("conditions") or []


def unknown_conditions(node: Object, now: str) -> list[Object] | None:
    """The conditions of a node that stopped sending heartbeats; None if they are Unknown already."""
    conditions = {condition["type"]: condition for condition in _conditions(node)}
    changed = False
    for kind in _KUBELET_CONDITIONS:
        before = conditions.get(kind)
        if before is not None and before["status"] == "Unknown":
            continue
        reason, message = messages.NODE_STATUS_UNKNOWN if before is not None else messages.NODE_STATUS_NEVER_UPDATED
        unknown = {"status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now}
        conditions[kind] = {**(before or {"type": kind}), **unknown}
        changed = True
    return list(conditions.values()) if changed else None


def with_no_execute_taint(node: Object, taints: list[Object], now: str, *, alone: bool) -> list[Object]:
    """Add the NoExecute taint of a node that is not ready, and remove it from one that is.

    `alone`: no node is ready. Then the failure is on this side, and no pod is evicted (upstream's full disruption
    mode).
    """
    desired_key = "" if alone else _NO_EXECUTE_TAINTS.get(ready_status(node), "")
    result = [taint for taint in taints if not _is_managed(taint) or taint["key"] == desired_key]
    if desired_key and not any(_is_managed(taint) for taint in result):
        result.append({"key": desired_key, "effect": "NoExecute", "timeAdded": now})
    return result


def _is_managed(taint: Object) -> bool:
    return taint["effect"] == "NoExecute" and taint["key"] in _NO_EXECUTE_TAINTS.values()
