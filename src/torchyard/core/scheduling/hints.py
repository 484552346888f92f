"""What would let a pending pod start, in one sentence that the user can act on."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.quantity import Format, Quantity
from torchyard.core.scheduling.filters import untolerated_taint
from torchyard.core.scheduling.node_info import PODS, NodeInfo, requests

_INSUFFICIENT = "Insufficient "


def hint(pod: Object, nodes: list[NodeInfo], reasons: list[str]) -> str:  # noqa: PLR0911 - one return per hint
    """One sentence for the first reason that has a remedy; empty if none is known."""
    for reason in reasons:
        if reason.startswith(_INSUFFICIENT):
            missing = [
                reason_text.removeprefix(_INSUFFICIENT)
                for reason_text in reasons
                if reason_text.startswith(_INSUFFICIENT)
            ]
            return _resource_hint(pod, nodes, missing)
        if reason == "Too many pods":
            return "Delete pods that have ended, or give the node a larger limit."
        if "untolerated taint" in reason:
            taint = next(filter(None, (untolerated_taint(pod, node_info) for node_info in nodes)))
            named = f"{{{taint['key']}: {taint.get('value') or ''}}}"
            return f"Add a toleration for the {named} taint, or remove it from the node."
        if "affinity/selector" in reason:
            return _affinity_hint(pod, nodes)
        if "unschedulable" in reason:
            return f"Allow pods again: kubectl uncordon {nodes[0].name}."
        if "free ports" in reason:
            return "Leave out hostPort, or end the pod that holds it."
        if "PersistentVolumeClaim" in reason or "persistentvolumeclaim" in reason:
            return "Create the claim, or a volume that it can bind to."
        if "pod affinity" in reason:
            return "Start the pods it wants to be near, or relax its podAffinity."
        if "anti-affinity" in reason:
            return "End the pods it must not be near, or relax the podAntiAffinity."
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
        return f"No node has any {name}: remove the request, or start the node on a machine that has it."
    most, request = _format_amount(name, largest[name]), _format_amount(name, requested.get(name, 0))
    if requested.get(name, 0) > largest[name]:
        return f"No node has more than {most} of {name} in all: it asks for {request}."
    return f"It asks for {request} of {name}; others hold too much of the {most}: wait, end something, or ask for less."


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
            return f"Label a node that should take it: kubectl label node {node_info.name} {pairs}."
    return "Change the node affinity, or label a node so that it matches."
