"""Why a pod does not fit on a node: kube-scheduler's filters, in its order and with its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchyard.api import selectors
from torchyard.api.node_selectors import parse_int64
from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.core.scheduling.node_info import (
    PODS,
    REQUIRED,
    NodeInfo,
    host_ports,
    host_ports_conflict,
    requests,
    required_anti_affinity,
)


def filter_reasons(pod: Object, node_info: NodeInfo, all_nodes: Iterable[NodeInfo]) -> list[str]:
    """The reasons why the pod does not fit; empty if it does.

    The first filter that fails ends the search, as in upstream; all insufficient resources are listed.
    """
    all_nodes = list(all_nodes)
    for check in (_unschedulable, _taints, _node_affinity, _ports):
        reason = check(pod, node_info)
        if reason:
            return [reason]
    missing = insufficient_resources(pod, node_info)
    if missing:
        return [messages.insufficient(name) if name != PODS else messages.TOO_MANY_PODS for name in missing]
    reason = _pod_affinity(pod, node_info, all_nodes)
    return [reason] if reason else []


def _unschedulable(pod: Object, node_info: NodeInfo) -> str:
    if not node_info.node["spec"].get("unschedulable"):
        return ""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    return "" if tolerates(pod, cordon) else messages.NODE_UNSCHEDULABLE


def _taints(pod: Object, node_info: NodeInfo) -> str:
    return messages.UNTOLERATED_TAINT if untolerated_taint(pod, node_info) else ""


def untolerated_taint(pod: Object, node_info: NodeInfo) -> Object | None:
    """The first taint of the node that the pod does not tolerate."""
    taints: list[Object] = node_info.node["spec"].get("taints") or []
    keeping = (
        taint for taint in taints if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(pod, taint)
    )
    return next(keeping, None)


def tolerates(pod: Object, taint: Object) -> bool:
    """Whether a toleration of the pod matches the taint."""
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if (toleration.get("operator") or "Equal") == "Exists":
            return True
        if toleration.get("key") and (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _node_affinity(pod: Object, node_info: NodeInfo) -> str:
    return "" if fits_node_affinity(pod, node_info) else messages.NODE_AFFINITY


def fits_node_affinity(pod: Object, node_info: NodeInfo) -> bool:
    """Whether a node has what the pod's nodeSelector and required node affinity name."""
    spec = pod["spec"]
    selector = spec.get("nodeSelector") or {}
    if any(node_info.labels.get(key) != value for key, value in selector.items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return not required or any(matches_term(node_info, term) for term in required.get("nodeSelectorTerms") or ())


def matches_term(node_info: NodeInfo, term: Object) -> bool:
    """Whether a node matches every expression of a term; an empty term matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    names = {"metadata.name": node_info.name}
    return all(_matches(node_info.labels, expression) for expression in labels) and all(
        _matches(names, expression) for expression in fields
    )


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
    number, bound = parse_int64(labels[key]), parse_int64(values[0] if values else "")
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _ports(pod: Object, node_info: NodeInfo) -> str:
    ports = host_ports(pod)
    is_taken = ports and any(host_ports_conflict(pod, other) for other in node_info.pods.values())
    return messages.NODE_PORTS if is_taken else ""


def insufficient_resources(pod: Object, node_info: NodeInfo) -> list[str]:
    """The resources that the node does not have enough of, in kube-scheduler's order."""
    free, requested = node_info.free(), requests(pod)
    order = sorted(requested, key=lambda name: (name != PODS, name != "cpu", name != "memory", name))
    return [name for name in order if requested[name] > free.get(name, 0)]


def _pod_affinity(pod: Object, node_info: NodeInfo, all_nodes: list[NodeInfo]) -> str:
    affinity = pod["spec"].get("affinity") or {}
    for term in (affinity.get("podAffinity") or {}).get(REQUIRED) or ():
        if not _has_peer(pod, term, node_info, all_nodes) and not _is_first_of_its_kind(pod, term, all_nodes):
            return messages.POD_AFFINITY
    for term in required_anti_affinity(pod):
        if _has_peer(pod, term, node_info, all_nodes):
            return messages.POD_ANTI_AFFINITY
    for other in all_nodes:
        for existing in other.exclusive.values():
            for term in required_anti_affinity(existing):
                if _same_topology(term, node_info, other) and _selected(
                    term, pod, existing["metadata"].get("namespace", "")
                ):
                    return messages.EXISTING_ANTI_AFFINITY
    return ""


def _has_peer(pod: Object, term: Object, node_info: NodeInfo, all_nodes: list[NodeInfo]) -> bool:
    namespace = pod["metadata"].get("namespace", "")
    return any(
        _selected(term, peer, namespace)
        for other in all_nodes
        if _same_topology(term, node_info, other)
        for peer in other.pods.values()
    )


def _is_first_of_its_kind(pod: Object, term: Object, all_nodes: list[NodeInfo]) -> bool:
    """A pod that matches its own affinity may be the first; otherwise no such pod could ever start."""
    namespace = pod["metadata"].get("namespace", "")
    no_peer = not any(_selected(term, peer, namespace) for other in all_nodes for peer in other.pods.values())
    return no_peer and _selected(term, pod, namespace)


def _same_topology(term: Object, left: NodeInfo, right: NodeInfo) -> bool:
    key = term.get("topologyKey") or ""
    return key in left.labels and left.labels.get(key) == right.labels.get(key)


def _selected(term: Object, pod: Object, namespace: str) -> bool:
    namespaces = term.get("namespaces") or [namespace]
    if pod["metadata"].get("namespace", "") not in namespaces and term.get("namespaceSelector") != {}:
        return False
    return selectors.from_object(term.get("labelSelector")).matches(pod["metadata"].get("labels") or {})
