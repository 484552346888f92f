"""A node that was not heard of for a while is unknown, and drives its pods out. Pure."""

from __future__ import annotations

from torchyard.api.objects import Object

# How long a node may be silent: kube-controller-manager's --node-monitor-grace-period.
GRACE_SECONDS = 50.0
_SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
_NEVER_HEARD = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_DRIVES_OUT = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}


def ready_status(node: Object) -> str:
    """True, False or Unknown; empty if the node never said."""
    return next((str(one["status"]) for one in _conditions(node) if one["type"] == "Ready"), "")


def _conditions(node: Object) -> list[Object]:
    return (node.get("status") or {}).get("conditions") or []


def unknown_conditions(node: Object, now: str) -> list[Object] | None:
    """The conditions of a node that was silent too long; None if they say so already."""
    found = {one["type"]: one for one in _conditions(node)}
    changed = False
    for kind in _WATCHED:
        before = found.get(kind)
        if before is not None and before["status"] == "Unknown":
            continue
        reason, message = _SILENT if before is not None else _NEVER_HEARD
        said = {"status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now}
        found[kind] = {**(before or {"type": kind}), **said}
        changed = True
    return list(found.values()) if changed else None


def with_no_execute_taint(node: Object, taints: list[Object], now: str, *, alone: bool) -> list[Object]:
    """A node's taints with the one that drives pods out while it is not ready, and without it when it is.

    `alone`: no node is ready at all. Then it is this side that hears nothing, and nobody is driven out (upstream's
    disruption mode).
    """
    wanted = "" if alone else _DRIVES_OUT.get(ready_status(node), "")
    kept = [one for one in taints if not _is_ours(one) or one["key"] == wanted]
    if wanted and not any(_is_ours(one) for one in kept):
        kept.append({"key": wanted, "effect": "NoExecute", "timeAdded": now})
    return kept


def _is_ours(taint: Object) -> bool:
    return taint["effect"] == "NoExecute" and taint["key"] in _DRIVES_OUT.values()
