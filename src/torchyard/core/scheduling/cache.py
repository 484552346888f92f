"""Nodes with the pods on them, kept current change by change: kube-scheduler's cache."""

from __future__ import annotations

from torchyard.api.conditions import has_true_condition
from torchyard.api.objects import Object
from torchyard.core.scheduling.node_info import NodeInfo, uid_of


class SchedulerCache:
    """Pods may arrive before their node. A pod is assumed on a node from the decision until the watch confirms it."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Object]] = {}  # by node and uid; includes the assumed ones
        self._node_of: dict[str, str] = {}
        self._assumed: set[str] = set()
        self._nodes: dict[str, NodeInfo] = {}
        self._ready: list[NodeInfo] | None = None

    def nodes(self) -> list[NodeInfo]:
        """The nodes that take pods; an unreachable one does not."""
        if self._ready is None:
            self._ready = [info for info in self._nodes.values() if has_true_condition(info.node, "Ready")]
        return self._ready

    def node(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    def put_node(self, node: Object) -> bool:
        """Returns whether a pod could fit now that did not fit before. A heartbeat changes nothing."""
        name = node["metadata"]["name"]
        known = self._nodes.get(name)
        if known is not None and _scheduling_fields(known.node) == _scheduling_fields(node):
            known.node = node
            return False
        self._nodes[name] = NodeInfo.of(node, self._pods.get(name, {}).values())
        self._ready = None
        return True

    def remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._ready = None

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def assume(self, pod: Object, node: str) -> None:
        self._assumed.add(uid_of(pod))
        self._add(pod, node)

    def forget(self, uid: str) -> NodeInfo | None:
        """Drop an assumption that did not come true; returns the node that has room again."""
        return self.remove_pod(uid) if uid in self._assumed else None

    def put_pod(self, pod: Object) -> bool:
        """Take a pod that is bound and not finished; returns whether it is new on its node."""
        uid, name = uid_of(pod), pod["spec"]["nodeName"]
        self._assumed.discard(uid)
        known = self._pods.get(self._node_of.get(uid, ""), {}).get(uid)
        if known is not None and self._node_of[uid] == name and _is_same_for_scheduling(known, pod):
            self._replace(uid, pod, name)
            return False
        self.remove_pod(uid)
        self._add(pod, name)
        return True

    def remove_pod(self, uid: str) -> NodeInfo | None:
        """Returns the node that has room again; None if the pod was on none."""
        self._assumed.discard(uid)
        name = self._node_of.pop(uid, "")
        if not name:
            return None
        del self._pods[name][uid]
        info = self._nodes.get(name)
        if info is not None:
            info.remove(uid)
        return info

    def _add(self, pod: Object, node: str) -> None:
        uid = uid_of(pod)
        self._node_of[uid] = node
        self._pods.setdefault(node, {})[uid] = pod
        if node in self._nodes:
            self._nodes[node].add(pod)

    def _replace(self, uid: str, pod: Object, node: str) -> None:
        self._pods[node][uid] = pod
        info = self._nodes.get(node)
        if info is not None:
            info.pods[uid] = pod


def _scheduling_fields(node: Object) -> tuple[object, ...]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
        has_true_condition(node, "Ready"),
    )


def _is_same_for_scheduling(known: Object, pod: Object) -> bool:
    """Most changes are of the status; a cached spec that did not change is shared, so the comparison is quick."""
    old, new = known["spec"], pod["spec"]
    if old is not new and {**old, "nodeName": None} != {**new, "nodeName": None}:
        return False
    return bool(known["metadata"].get("labels") == pod["metadata"].get("labels"))
