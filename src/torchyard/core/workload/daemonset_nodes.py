"""Which nodes a DaemonSet's pods belong on, and the pod for a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api.gvr import DAEMON_SETS
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.core.scheduling.filters import fits_node_affinity, tolerates
from torchyard.core.scheduling.node_info import REQUIRED, NodeInfo
from torchyard.core.workload.pods import pod_from_template

# A daemon runs on nodes that are not ready or short of something, because it may be what helps them.
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Placement(NamedTuple):
    should_run: bool
    may_stay: bool  # a pod that runs there already


def place(daemon_set: Object, node: Object) -> Placement:
    """Whether a node should have a pod. Only NoExecute taints remove one that is there."""
    template = daemon_set["spec"]["template"]["spec"]
    pod = {"spec": {**template, "tolerations": _tolerations(template)}}
    if template.get("nodeName") and template["nodeName"] != node["metadata"]["name"]:
        return Placement(False, False)
    if not fits_node_affinity(pod, NodeInfo(node)):
        return Placement(False, False)
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if not tolerates(pod, taint)]
    effects = {taint["effect"] for taint in taints}
    if effects & {"NoSchedule", "NoExecute"}:
        return Placement(False, "NoExecute" not in effects)
    return Placement(True, True)


def _tolerations(template: Object) -> list[Object]:
    own = list(template.get("tolerations") or ())
    wanted = [*_TOLERATED, *([_NETWORK] if template.get("hostNetwork") else [])]
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return own + [toleration for toleration in added if toleration not in own]


def make_pod(daemon_set: Object, node: str, hash_: str) -> Object:
    """The pod for a node. The scheduler binds it; an affinity to the node's name lets it choose no other."""
    template = daemon_set["spec"]["template"]
    reference = controller_reference(daemon_set, DAEMON_SETS.api_version, "DaemonSet")
    pod = pod_from_template(daemon_set, template, reference)
    pod["metadata"]["labels"] |= {
        labels.TEMPLATE_GENERATION: template_generation(daemon_set),
        labels.CONTROLLER_REVISION_HASH: hash_,
    }
    pod["spec"]["tolerations"] = _tolerations(template["spec"])
    pod["spec"]["affinity"] = _with_node_name(template["spec"].get("affinity") or {}, node)
    return pod


def template_generation(daemon_set: Object) -> str:
    return str((daemon_set["metadata"].get("annotations") or {}).get(labels.TEMPLATE_GENERATION_ANNOTATION) or "1")


def _with_node_name(affinity: Object, node: str) -> Object:
    """The node's name instead of the required terms, which `place` has looked at."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    node_affinity = affinity.get("nodeAffinity") or {}
    return {**affinity, "nodeAffinity": {**node_affinity, REQUIRED: {"nodeSelectorTerms": [term]}}}


def node_of(pod: Object) -> str:
    """The node that a pod is bound to or was created for; empty if it is neither."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for expression in term.get("matchFields") or ():
            if expression["key"] == "metadata.name" and expression["operator"] == "In" and expression.get("values"):
                return str(expression["values"][0])
    return ""


def by_node(pods: Iterable[Object]) -> dict[str, list[Object]]:
    """Pods by node; of each node those that are bound first, then the oldest."""
    nodes: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=_age):
        if name := node_of(pod):
            nodes.setdefault(name, []).append(pod)
    return nodes


def _age(pod: Object) -> tuple[bool, str, str]:
    metadata = pod["metadata"]
    return not pod["spec"].get("nodeName"), metadata.get("creationTimestamp") or "", metadata["name"]
