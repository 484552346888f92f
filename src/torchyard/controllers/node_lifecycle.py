"""Nodes: marks nodes without heartbeats as Unknown, and sets the taints that `core.node` describes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.cluster import messages
from torchyard.api.errors import StatusError
from torchyard.api.gvr import LEASES, NODES, PODS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.core.node.health import GRACE_SECONDS, ready_status, unknown_conditions, with_no_execute_taint
from torchyard.core.node.taints import taints
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

_LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycleController:
    """A heartbeat is a change, timed by this process's clock, because node clocks may be wrong."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._grace, self._clock = client, grace, clock
        self.recorder = EventRecorder(client, "node-controller", clock=clock)
        self._nodes = informers.for_resource(NODES)
        self._leases = informers.for_resource(LEASES, namespace=_LEASE_NAMESPACE)
        self._pods = informers.for_resource(PODS, indexes={"node": by_node})
        self._heartbeats: dict[str, tuple[tuple[str, ...], float]] = {}
        sources = (self._nodes, self._leases, self._pods)
        self.controller = Controller("node-lifecycle-controller", self._reconcile, sources, workers=1)
        self._leases.on_change(lambda _change, obj, _before: self.controller.queue.add(("", obj["metadata"]["name"])))
        self._nodes.on_change(self._node_changed)

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, controller=self.controller.run)

    def _node_changed(self, change: str, node: Object, before: Object | None) -> None:
        """Whether an unreachable node evicts its pods depends on the other nodes, so all are looked at."""
        same = change == "MODIFIED" and before is not None and ready_status(before) == ready_status(node)
        for affected in (node,) if same else (node, *self._nodes.all()):
            self.controller.queue.add(("", affected["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        node = self._nodes.get(*key)
        if node is None:
            self._heartbeats.pop(key[1], None)
            return None
        seconds_left = self._grace - self._seconds_silent(node)
        if seconds_left <= 0:
            node = await self._mark_unknown(node)
        await self._taint(node)
        return seconds_left if seconds_left > 0 else None

    def _seconds_silent(self, node: Object) -> float:
        """Seconds since the last heartbeat."""
        name, now = node["metadata"]["name"], asyncio.get_running_loop().time()
        lease = self._leases.get(_LEASE_NAMESPACE, name) or {"spec": {}}
        conditions = (node.get("status") or {}).get("conditions") or ()
        beats = [condition.get("lastHeartbeatTime") or "" for condition in conditions if condition["type"] == "Ready"]
        sign = (node["metadata"]["uid"], str(lease["spec"].get("renewTime")), *beats)
        heartbeat = self._heartbeats.get(name)
        if heartbeat is None or heartbeat[0] != sign:
            heartbeat = self._heartbeats[name] = (sign, now)
        return now - heartbeat[1]

    async def _mark_unknown(self, node: Object) -> Object:
        name, before = node["metadata"]["name"], ready_status(node)
        conditions = unknown_conditions(node, to_rfc3339(self._clock()))
        if conditions is None:
            return node
        status = {**(node.get("status") or {}), "conditions": conditions}
        node = await self._client.update(NODES, {**node, "status": status}, subresource="status")
        if before == "True":
            reference = {"apiVersion": "v1", "kind": "Node", **node}
            self.recorder.event(reference, "Normal", messages.NODE_NOT_READY, messages.node_not_ready(name))
            for pod in self._pods.by("node", name):
                await self._mark_unready(pod)
        return node

    async def _mark_unready(self, pod: Object) -> None:
        """Services must not send traffic to a pod on an unreachable node."""
        if not is_ready(pod):
            return
        metadata, now = pod["metadata"], to_rfc3339(self._clock())
        conditions = [
            {**condition, "status": "False", "lastTransitionTime": now} if condition["type"] == "Ready" else condition
            for condition in pod["status"]["conditions"]
        ]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": conditions}}
        try:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except StatusError as error:
            if error.status not in (404, 409):
                raise

    async def _taint(self, node: Object) -> None:
        alone = not any(ready_status(other) == "True" for other in self._nodes.all())
        desired = with_no_execute_taint(node, taints(node), to_rfc3339(self._clock()), alone=alone)
        if desired != (node["spec"].get("taints") or []):
            metadata = node["metadata"]
            # only if no other client, such as `kubectl taint`, has written since
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"taints": desired or None}}
            await self._client.patch(NODES, metadata["name"], patch)


def by_node(pod: Object) -> tuple[str, ...]:
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()
