"""The plane's scheduler: binds pods to nodes as `core.scheduling` decides. A cluster has its own scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.times import to_rfc3339
from torchyard.controllers.concurrency import gather_all
from torchyard.controllers.volume_binder import by_claim
from torchyard.core.scheduling.node_info import NodeInfo, is_finished
from torchyard.core.scheduling.schedule import Unschedulable, gang_of, gang_size, schedule_gang, schedule_pod
from torchyard.core.volume.scheduling import VolumeBinding
from torchyard.core.volume.view import CLAIM
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)

NAME = "default-scheduler"
_RETRY_SECONDS = 1.0
_CONCURRENT_WRITES = 64
_NODE_INDEX, _CLAIM_INDEX, _GANG_INDEX = "place", "claim", "gang"
_NO_NODE = ""


class Scheduler:
    """A pass looks at every pending pod. Passes follow changes, not a timer."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, NAME)
        self._nodes = informers.for_resource(NODES)
        self._pods = informers.for_resource(
            PODS, indexes={_CLAIM_INDEX: by_claim, _NODE_INDEX: _node_of, _GANG_INDEX: _gangs_of}
        )
        self._claims, self._volumes, self._classes = (
            informers.for_resource(ref) for ref in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
        )
        self._sources = (self._nodes, self._pods, self._claims, self._volumes, self._classes)
        self._volume_binding = VolumeBinding(
            self._claims.get,
            lambda name: self._volumes.get("", name),
            self._volumes.all,
            self._classes.all,
            lambda namespace, name: self._pods.by(_CLAIM_INDEX, f"{namespace}/{name}"),
        )
        self._changed = asyncio.Event()
        self._assumed: dict[str, str] = {}  # uid → node, until the watch delivers the binding
        self._last_messages: dict[str, str] = {}  # uid → the last FailedScheduling message
        self._write_slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        for informer in self._sources:
            informer.on_change(lambda *_: self._changed.set())

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, passes=self._passes)

    async def _passes(self) -> None:
        for informer in self._sources:
            await informer.synced.wait()
        while True:
            self._changed.clear()
            try:
                await self._schedule()
            except YardError as failed:
                log.warning("scheduling pass failed: error=%s retry_seconds=%g", failed, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _schedule(self) -> None:
        waiting = [pod for pod in self._pods.by(_NODE_INDEX, _NO_NODE) if self._is_schedulable(pod)]
        alive = {pod["metadata"]["uid"] for pod in waiting}
        self._last_messages = {uid: message for uid, message in self._last_messages.items() if uid in alive}
        if not waiting:
            return  # the usual case; the nodes need not be counted then
        results = self._schedule_pods(sorted(waiting, key=_queue_order), self._node_infos())
        await gather_all(self._apply(*result) for result in results)

    def _schedule_pods(
        self, waiting: list[Object], node_infos: list[NodeInfo]
    ) -> list[tuple[Object, NodeInfo | Unschedulable]]:
        """The result for each pod. The node infos include the pods assigned earlier in this pass."""
        results: list[tuple[Object, NodeInfo | Unschedulable]] = []
        gangs: dict[tuple[str, str], list[Object]] = {}
        by_name = {node_info.name: node_info for node_info in node_infos}

        def record(pod: Object, chosen: str | Unschedulable) -> None:
            if isinstance(chosen, Unschedulable):
                results.append((pod, chosen))
                return
            by_name[chosen].assume(pod)
            results.append((pod, by_name[chosen]))

        for pod in waiting:
            gang = gang_of(pod)
            if gang:
                gangs.setdefault(gang, []).append(pod)
                continue
            blocked = self._volume_binding.pre_filter(pod)
            record(
                pod, schedule_pod(pod, node_infos, pre_filter_reason=blocked, volume_filter=self._volume_binding.filter)
            )
        for gang, pods in gangs.items():
            result = self._schedule_gang(gang, pods, node_infos)
            for pod in pods:
                record(pod, result if isinstance(result, Unschedulable) else result[pod["metadata"]["uid"]])
        return results

    def _schedule_gang(
        self, gang: tuple[str, str], pods: list[Object], node_infos: list[NodeInfo]
    ) -> dict[str, str] | Unschedulable:
        members = self._pods.by(_GANG_INDEX, "/".join(gang))
        blocked = next((reason for pod in pods if (reason := self._volume_binding.pre_filter(pod))), "")
        if blocked:
            return Unschedulable(messages.gang_pending(blocked))
        placed = len(members) - len(pods)
        return schedule_gang(
            pods, node_infos, size=gang_size(members), placed=placed, volume_filter=self._volume_binding.filter
        )

    def _node_infos(self) -> list[NodeInfo]:
        assumed, self._assumed = self._assumed, {}
        by_node: dict[str, list[Object]] = {}
        for pod in self._pods.by(_NODE_INDEX, _NO_NODE):
            uid = pod["metadata"]["uid"]
            if uid in assumed:
                self._assumed[uid] = assumed[uid]
                by_node.setdefault(assumed[uid], []).append(pod)
        views = []
        for node in self._nodes.all():
            if _is_ready(node):
                name = node["metadata"]["name"]
                views.append(NodeInfo.of(node, (*self._pods.by(_NODE_INDEX, name), *by_node.get(name, ()))))
        return views

    def _is_schedulable(self, pod: Object) -> bool:
        spec, metadata = pod["spec"], pod["metadata"]
        if spec.get("nodeName") or metadata["uid"] in self._assumed or metadata.get("deletionTimestamp"):
            return False
        if spec.get("schedulingGates") or (spec.get("schedulerName") or NAME) != NAME:
            return False
        return not self._volume_binding.is_binding(pod)

    async def _apply(self, pod: Object, result: NodeInfo | Unschedulable) -> None:
        async with self._write_slots:
            if isinstance(result, Unschedulable):
                await self._mark_unschedulable(pod, str(result))
            elif not await self._pre_bind_volumes(pod, result):
                await self._bind(pod, result.name)

    async def _pre_bind_volumes(self, pod: Object, view: NodeInfo) -> bool:
        """Whether the pod waits for volumes on its node; it is bound once they are."""
        choices = self._volume_binding.pre_bind_writes(pod, view)
        for write in choices:
            try:
                await self._client.update(
                    PERSISTENT_VOLUME_CLAIMS if write.kind == CLAIM else PERSISTENT_VOLUMES, write.object
                )
            except StatusError as failed:
                if failed.status not in (404, 409):  # a conflict: the next pass reads the newer object
                    raise
        return bool(choices)

    async def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._assumed[metadata["uid"]] = node
        try:
            await self._client.create(
                PODS, binding, metadata["namespace"], name=metadata["name"], subresource="binding"
            )
        except BaseException as error:
            self._assumed.pop(metadata["uid"], None)
            if not isinstance(error, StatusError) or error.status not in (404, 409):
                raise
            return
        self._last_messages.pop(metadata["uid"], None)
        message = messages.assigned(metadata["namespace"], metadata["name"], node)
        self.recorder.event(_event_subject(pod), "Normal", messages.SCHEDULED, message)

    async def _mark_unschedulable(self, pod: Object, message: str) -> None:
        metadata = pod["metadata"]
        if self._last_messages.get(metadata["uid"]) == message:
            return
        self._last_messages[metadata["uid"]] = message
        self.recorder.event(_event_subject(pod), "Warning", messages.FAILED_SCHEDULING, message)
        conditions = [
            other for other in (pod.get("status") or {}).get("conditions") or () if other["type"] != "PodScheduled"
        ]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": messages.UNSCHEDULABLE,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": to_rfc3339(self._clock()),
        }
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [*conditions, condition]}}
        try:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except StatusError as failed:
            if failed.status not in (404, 409):
                raise


def _node_of(pod: Object) -> list[str]:
    """The node of a pod, or none; a finished pod uses no node."""
    return [] if is_finished(pod) else [pod["spec"].get("nodeName") or _NO_NODE]


def _gangs_of(pod: Object) -> list[str]:
    gang = gang_of(pod)
    return ["/".join(gang)] if gang else []


def _queue_order(pod: Object) -> tuple[int, str, str]:
    """Higher priority first, then the older one, as in kube-scheduler's queue."""
    return -(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _is_ready(node: Object) -> bool:
    """Whether a node is ready; an unreachable one gets no new pods."""
    return has_true_condition(node, "Ready")


def _event_subject(pod: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", **pod}
