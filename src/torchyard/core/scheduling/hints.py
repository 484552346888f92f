"""What would let a pod start, in a sentence people can act on."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.quantity import Format, Quantity
from torchyard.core.scheduling.filters import untolerated_taint
from torchyard.core.scheduling.node_info import PODS, NodeInfo, requests

_INSUFFICIENT = "Insufficient "


def hint(pod: Object, nodes: list[NodeInfo], reasons: list[str]) -> str:
    """One sentence for the first reason that has a remedy; empty if none is known."""
    for reason in reasons:
        if reason.startswith(_INSUFFICIENT):
            lacking = [one.removeprefix(_INSUFFICIENT) for one in reasons if one.startswith(_INSUFFICIENT)]
            return _amount(pod, nodes, lacking)
        if reason == "Too many pods":
            return "Delete pods that have ended, or give the node a larger limit."
        if "untolerated taint" in reason:
            taint = next(filter(None, (untolerated_taint(pod, view) for view in nodes)))
            named = f"{{{taint['key']}: {taint.get('value') or ''}}}"
            return f"Add a toleration for the {named} taint, or remove it from the node."
        if "affinity/selector" in reason:
            return _labels(pod, nodes)
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


def _amount(pod: Object, nodes: list[NodeInfo], lacking: list[str]) -> str:
    """For what no node will ever have, if there is such a thing; else for what others hold.

    How much is free at the moment stays out: each change of it would be news for every pod that waits.
    """
    asked = requests(pod)
    whole = {name: max(view.allocatable.get(name, 0) for view in nodes) for name in lacking}
    name = max(lacking, key=lambda one: asked.get(one, 0) > whole[one])
    if whole[name] == 0:
        return f"No node has any {name}: remove the request, or start the node on a machine that has it."
    most, wanted = _written(name, whole[name]), _written(name, asked.get(name, 0))
    if asked.get(name, 0) > whole[name]:
        return f"No node has more than {most} of {name} in all: it asks for {wanted}."
    return f"It asks for {wanted} of {name}; others hold too much of the {most}: wait, end something, or ask for less."


def _written(name: str, milli: int) -> str:
    if name in ("memory", "ephemeral-storage"):
        return str(Quantity(milli * 10**6, Format.BINARY))
    if name == PODS:
        return str(milli // 1000)
    return str(Quantity(milli * 10**6))


def _labels(pod: Object, nodes: list[NodeInfo]) -> str:
    wanted = pod["spec"].get("nodeSelector") or {}
    for view in nodes:
        lacking = {key: value for key, value in wanted.items() if view.labels.get(key) != value}
        if lacking:
            pairs = " ".join(f"{key}={value}" for key, value in sorted(lacking.items()))
            return f"Label a node that should take it: kubectl label node {view.name} {pairs}."
    return "Change the node affinity, or label a node so that it matches."
