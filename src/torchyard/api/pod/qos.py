"""The quality-of-service class of a pod, which determines when it is killed under memory pressure."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.api.objects import Object

_COUNTED = ("cpu", "memory")


def quality_of_service(pod: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort from the cpu and memory requests and limits of the containers."""
    spec = pod["spec"]
    holders = (
        [spec]
        if spec.get("resources") is not None
        else [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    )
    guaranteed, asks = True, False
    for holder in holders:
        resources = holder.get("resources")
        if not resources:
            guaranteed = False
            continue
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in _COUNTED:
            request, limit = _amount(requests, name), _amount(limits, name)
            if request or limit:
                asks = True
            if not limit or request != limit:
                guaranteed = False
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amount(amounts: dict[str, object], name: str) -> int:
    text = amounts.get(name)
    return max(quantity.parse(str(text)).nano, 0) if text is not None else 0
