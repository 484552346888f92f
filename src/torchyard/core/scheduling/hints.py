"""What would let a pending pod start, in one sentence that the user can act on."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.quantity import Format, Quantity
from torchyard.core.scheduling.filters import untolerated_taint
from torchyard.core.scheduling.node_info import PODS, NodeInfo, requests

_FIXED_HINTS = {
    messages.TOO_MANY_PODS: messages.TOO_MANY_PODS_HINT,
    messages.NODE_PORTS: messages.NODE_PORTS_HINT,
    messages.POD_AFFINITY: messages.POD_AFFINITY_HINT,
    messages.POD_ANTI_AFFINITY: messages.ANTI_AFFINITY_HINT,
    messages.EXISTING_ANTI_AFFINITY: messages.ANTI_AFFINITY_HINT,
}


def hint(pod: Object, nodes: list[NodeInfo], reasons: list[str]) -> str:
    """One sentence for the first reason that has a remedy; empty if none is known."""
    for reason in reasons:
        if reason in _FIXED_HINTS:
            return _FIXED_HINTS[reason]
        if messages.insufficient_resource(reason):
            return _resource_hint(pod, nodes, list(filter(None, map(messages.insufficient_resource, reasons))))
        if reason == messages.UNTOLERATED_TAINT:
            taint = next(filter(None, (untolerated_taint(pod, node_info) for node_info in nodes)))
            return messages.taint_hint(taint["key"], taint.get("value") or "")
        if reason == messages.NODE_AFFINITY:
            return _affinity_hint(pod, nodes)
        if reason == messages.NODE_UNSCHEDULABLE:
            return messages.uncordon_hint(nodes[0].name)
        if messages.is_claim_reason(reason):
            return messages.CLAIM_HINT
    return ""


def _resource_hint(pod: Object, nodes: list[NodeInfo], missing: list[str]) -> str:
    """Prefer a resource that no node will ever have enough of; otherwise one that other pods use.

    The amount that is currently free is left out, because every change of it would be a new event for every pending
    pod.
    """
    requested = requests(pod)
    largest = {name: max(node_info.allocatable.get(name, 0) for node_info in nodes) for name in missing}
    name = max(missing, key=lambda resource: requested.get(resource, 0) > largest[resource])
    if largest[name] == 0:
        return messages.resource_missing_hint(name)
    most, request = _format_amount(name, largest[name]), _format_amount(name, requested.get(name, 0))
    if requested.get(name, 0) > largest[name]:
        return messages.request_too_large_hint(name, most, request)
    return messages.resource_in_use_hint(name, most, request)


def _format_amount(name: str, milli: int) -> str:
    if name in ("memory", "ephemeral-storage"):
        return str(Quantity(milli * 10**6, Format.BINARY))
    if name == PODS:
        return str(milli // 1000)
    return str(Quantity(milli * 10**6))


def _affinity_hint(pod: Object, nodes: list[NodeInfo]) -> str:
    selector = pod["spec"].get("nodeSelector") or {}
    for node_info in nodes:
        missing = {key: value for key, value in selector.items() if node_info.labels.get(key) != value}
        if missing:
            pairs = " ".join(f"{key}={value}" for key, value in sorted(missing.items()))
            return messages.label_hint(node_info.name, pairs)
    return messages.NODE_AFFINITY_HINT
