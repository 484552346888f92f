"""Why a pod does not fit on a node: the scheduler's filters, in its order and with its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchyard.api import selectors
from torchyard.api.objects import Object
from torchyard.core.scheduling.node_info import PODS, NodeInfo, host_ports, requests

UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


def filter_reasons(pod: Object, view: NodeInfo, every: Iterable[NodeInfo]) -> list[str]:
    """Empty: it fits. A filter that fails ends the search, as upstream; resources are told all at once."""
    for check in (_unschedulable, _taints, _node_affinity, _ports):
        said = check(pod, view)
        if said:
            return [said]
    lacking = insufficient_resources(pod, view)
    if lacking:
        return [f"Insufficient {name}" if name != PODS else "Too many pods" for name in lacking]
    said = _pod_affinity(pod, view, list(every))
    return [said] if said else []


def _unschedulable(pod: Object, view: NodeInfo) -> str:
    if not view.node["spec"].get("unschedulable"):
        return ""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    return "" if _tolerated(pod, cordon) else UNSCHEDULABLE


def _taints(pod: Object, view: NodeInfo) -> str:
    return "node(s) had untolerated taint(s)" if untolerated_taint(pod, view) else ""


def untolerated_taint(pod: Object, view: NodeInfo) -> Object | None:
    """The first taint of a node that keeps the pod away."""
    taints: list[Object] = view.node["spec"].get("taints") or []
    keeping = (one for one in taints if one["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(pod, one))
    return next(keeping, None)


def _tolerated(pod: Object, taint: Object) -> bool:
    for one in pod["spec"].get("tolerations") or ():
        if one.get("effect") and one["effect"] != taint["effect"]:
            continue
        if one.get("key") and one["key"] != taint["key"]:
            continue
        if (one.get("operator") or "Equal") == "Exists":
            return True
        if one.get("key") and (one.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _node_affinity(pod: Object, view: NodeInfo) -> str:
    spec = pod["spec"]
    wanted = spec.get("nodeSelector") or {}
    if any(view.labels.get(key) != value for key, value in wanted.items()):
        return AFFINITY
    needed = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if needed and not any(matches_term(view, term) for term in needed.get("nodeSelectorTerms") or ()):
        return AFFINITY
    return ""


def matches_term(view: NodeInfo, term: Object) -> bool:
    """All expressions of one term; an empty term matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    names = {"metadata.name": view.name}
    return all(_matches(view.labels, one) for one in labels) and all(_matches(names, one) for one in fields)


def _matches(labels: Mapping[str, str], expression: Object) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    present = key in labels
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    if operator == "NotIn":
        return not present or labels[key] not in values
    if not present:
        return False
    if operator == "In":
        return labels[key] in values
    number, bound = labels[key], values[0] if values else ""
    if not number.lstrip("-").isdigit() or not bound.lstrip("-").isdigit():
        return False
    return int(number) > int(bound) if operator == "Gt" else int(number) < int(bound)


def _ports(pod: Object, view: NodeInfo) -> str:
    wanted = host_ports(pod)
    return PORTS if wanted and any(wanted & host_ports(other) for other in view.pods) else ""


def insufficient_resources(pod: Object, view: NodeInfo) -> list[str]:
    """Resources the node has too little of left, in the order the scheduler tells them."""
    free, asked = view.free(), requests(pod)
    order = sorted(asked, key=lambda name: (name != PODS, name != "cpu", name != "memory", name))
    return [name for name in order if asked[name] > free.get(name, 0)]


def _pod_affinity(pod: Object, view: NodeInfo, every: list[NodeInfo]) -> str:
    affinity = pod["spec"].get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for term in (affinity.get("podAffinity") or {}).get(required) or ():
        if not _has_peer(pod, term, view, every) and not _is_first_of_its_kind(pod, term, every):
            return POD_AFFINITY
    for term in (affinity.get("podAntiAffinity") or {}).get(required) or ():
        if _has_peer(pod, term, view, every):
            return POD_ANTI_AFFINITY
    for other in every:
        for holder in other.pods:
            theirs = (holder["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
            for term in theirs.get(required) or ():
                if _same_topology(term, view, other) and _selected(term, pod, holder["metadata"].get("namespace", "")):
                    return EXISTING_ANTI_AFFINITY
    return ""


def _has_peer(pod: Object, term: Object, view: NodeInfo, every: list[NodeInfo]) -> bool:
    namespace = pod["metadata"].get("namespace", "")
    return any(
        _selected(term, peer, namespace) for other in every if _same_topology(term, view, other) for peer in other.pods
    )


def _is_first_of_its_kind(pod: Object, term: Object, every: list[NodeInfo]) -> bool:
    """A pod that matches its own affinity may be the first; else none could ever start."""
    namespace = pod["metadata"].get("namespace", "")
    nobody = not any(_selected(term, peer, namespace) for other in every for peer in other.pods)
    return nobody and _selected(term, pod, namespace)


def _same_topology(term: Object, left: NodeInfo, right: NodeInfo) -> bool:
    key = term.get("topologyKey") or ""
    return key in left.labels and left.labels.get(key) == right.labels.get(key)


def _selected(term: Object, pod: Object, namespace: str) -> bool:
    namespaces = term.get("namespaces") or [namespace]
    if pod["metadata"].get("namespace", "") not in namespaces and term.get("namespaceSelector") != {}:
        return False
    return selectors.from_object(term.get("labelSelector")).matches(pod["metadata"].get("labels") or {})
