"""Pods to delete: evicted by taints, left on deleted nodes, or terminated beyond the threshold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import NODES, PODS
from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.controllers.node_lifecycle import by_node
from torchyard.core.node.eviction import (
    TERMINATED,
    TERMINATED_POD_THRESHOLD,
    TERMINATING_UNSCHEDULED,
    eviction_time,
    garbage_kinds,
    terminated_beyond,
)
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)


class TaintEvictionController:
    """Deletes a pod when its toleration of a NoExecute taint expires."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, "taint-eviction-controller", clock=clock)
        self._nodes = informers.for_resource(NODES)
        self._pods = informers.for_resource(PODS, indexes={"node": by_node})
        self.controller = Controller("taint-eviction-controller", self._reconcile, (self._nodes, self._pods))
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, controller=self.controller.run)

    def _node_changed(self, _change: str, node: Object, before: Object | None) -> None:
        if before is None or before["spec"].get("taints") != node["spec"].get("taints"):
            for pod in self._pods.by("node", node["metadata"]["name"]):
                self.controller.queue.add(key_of(pod))

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        if pod["spec"].get("nodeName") and (before is None or before["spec"] != pod["spec"]):
            self.controller.queue.add(key_of(pod))

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is None or pod["metadata"].get("deletionTimestamp") or not pod["spec"].get("nodeName"):
            return None
        node = self._nodes.get("", pod["spec"]["nodeName"])
        now = self._clock()
        moment = eviction_time(pod, (node or {"spec": {}})["spec"].get("taints") or (), now)
        if moment is None:
            return None
        if moment > now:
            return (moment - now).total_seconds()
        reference = {"apiVersion": "v1", "kind": "Pod", **pod}
        self.recorder.event(
            reference, "Normal", messages.TAINT_MANAGER_EVICTION, messages.marked_for_deletion("/".join(key))
        )
        await _remove(self._client, pod, now, disruption=messages.DELETION_BY_TAINT_MANAGER)
        return None


class PodGarbageCollector:
    """Deletes pods that no kubelet and no other controller will remove."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        period: float = 20.0,
        quarantine: float = 40.0,  # a node may be created again at once
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._clock = client, clock
        self._period, self._quarantine = period, quarantine
        self._nodes = informers.for_resource(NODES)
        self._pods = informers.for_resource(PODS, indexes={"node": by_node, "garbage": garbage_kinds})
        self._missing: dict[str, float] = {}  # node → the time since which it does not exist

    async def run(self) -> None:
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        while True:
            try:
                await self.collect()
            except YardError as error:
                log.warning("pod garbage collection failed: error=%s retry_seconds=%g", error, self._period)
            await asyncio.sleep(self._period)

    async def collect(self) -> None:
        """Look at the pods that may have to go; the others are in no index that is read here."""
        disruption = messages.DELETION_BY_POD_GC
        for pod in self._orphans():
            if await self._client.find(NODES, pod["spec"]["nodeName"]) is None:
                await _remove(self._client, pod, self._clock(), disruption=disruption, force=True)
        surplus: list[Object] = []
        if self._pods.count("garbage", TERMINATED) > TERMINATED_POD_THRESHOLD:
            surplus = terminated_beyond(self._pods.by("garbage", TERMINATED))
        for pod in [*self._pods.by("garbage", TERMINATING_UNSCHEDULED), *surplus]:
            await _remove(self._client, pod, self._clock(), force=True)

    def _orphans(self) -> list[Object]:
        """The pods of nodes that have been missing for a while."""
        node_names = {node["metadata"]["name"] for node in self._nodes.all()}
        missing, now = set(self._pods.values("node")) - node_names, asyncio.get_running_loop().time()
        self._missing = {name: self._missing.get(name, now) for name in missing}
        gone = [name for name, since in self._missing.items() if now - since >= self._quarantine]
        return [pod for name in gone for pod in self._pods.by("node", name)]


async def _remove(
    client: Client, pod: Object, now: datetime, *, disruption: tuple[str, str] | None = None, force: bool = False
) -> None:
    """Write why a pod is deleted to its conditions, so that its owner can read it, then delete it.

    `force`: without a grace period, and with the phase set to Failed first.
    """
    metadata, status = pod["metadata"], pod.get("status") or {}
    try:
        if disruption is not None:
            target = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": disruption[0],
                "message": disruption[1],
                "lastTransitionTime": to_rfc3339(now),
            }
            others = [
                condition for condition in status.get("conditions") or () if condition["type"] != "DisruptionTarget"
            ]
            new_status: Object = {"conditions": [*others, target]}
            if force and status.get("phase") not in ("Succeeded", "Failed"):
                new_status["phase"] = "Failed"
            patch = {"metadata": {"uid": metadata["uid"]}, "status": new_status}
            await client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        grace = 0 if force else None
        await client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=grace)
    except StatusError as error:
        if error.status not in (404, 409):
            raise
