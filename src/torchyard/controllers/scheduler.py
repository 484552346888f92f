"""The plane's scheduler: binds pods to nodes as `core.scheduling` decides. A cluster has its own scheduler.

Informers keep a cache of the nodes and a queue of the waiting pods current. A cycle takes what is active in the queue,
one class of equal pods at a time, and starts the writes; it never looks at pods that nothing could help.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from torchyard.api.gvr import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.pod.phases import has_ended
from torchyard.controllers.scheduler_writes import BindingOutcome, SchedulerWrites
from torchyard.controllers.volume_binder import by_claim, candidate_volumes, unbound, unbound_claims_of
from torchyard.core.node.taints import NOT_READY
from torchyard.core.scheduling.cache import SchedulerCache
from torchyard.core.scheduling.node_info import NodeInfo
from torchyard.core.scheduling.pod_class import PodClass
from torchyard.core.scheduling.queue import SchedulingQueue
from torchyard.core.scheduling.schedule import Unschedulable, gang_of, gang_size, schedule_gang, schedule_pod
from torchyard.core.volume.scheduling import VolumeBinding
from torchyard.core.volume.view import candidate_keys, claims_of, class_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)

NAME = "default-scheduler"
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 10.0  # kube-scheduler's podInitialBackoff and podMaxBackoff
_FIRST_NODE_SECONDS = 10.0
_LONGEST_TURN = 0.005  # seconds of the event loop that a cycle takes at once
_CLAIM_INDEX, _GANG_INDEX = "claim", "gang"


class Scheduler:
    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.recorder = EventRecorder(client, NAME)
        self._nodes = informers.for_resource(NODES)
        self._pods = informers.for_resource(PODS, indexes={_CLAIM_INDEX: by_claim, _GANG_INDEX: _gangs_of})
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS, indexes={"unbound": unbound})
        self._classes = informers.for_resource(STORAGE_CLASSES)
        self._volumes = informers.for_resource(PERSISTENT_VOLUMES, indexes={"candidate": candidate_keys})
        self._sources = (self._nodes, self._pods, self._claims, self._volumes, self._classes)
        self._volume_binding = VolumeBinding(
            self._claims.get,
            lambda name: self._volumes.get("", name),
            partial(candidate_volumes, self._volumes),
            self._classes.all,
            lambda namespace, name: self._pods.by(_CLAIM_INDEX, f"{namespace}/{name}"),
        )
        self._cache = SchedulerCache()
        self._queue = SchedulingQueue(lambda pod: claims_of(pod).values())
        self._writes = SchedulerWrites(client, self.recorder, self._volume_binding, self._queue, clock)
        self._changed = asyncio.Event()
        self._failures: dict[str, int] = {}  # by uid: how many times a pod could not be bound
        self._backing_off: set[str] = set()  # uids of such pods, until they are tried again
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)
        self._claims.on_change(self._claim_changed)
        self._volumes.on_change(self._volume_changed)
        self._classes.on_change(self._class_changed)

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, cycles=self._run_cycles, reports=self._writes.run_reports)

    # Changes

    def _node_changed(self, change: str, node: Object, _before: Object | None) -> None:
        if change == "DELETED":
            self._cache.remove_node(node["metadata"]["name"])
            self._queue.nodes_changed()  # not a help, but another message
        elif self._cache.put_node(node):
            self._queue.nodes_changed()
        else:
            return
        self._changed.set()

    def _pod_changed(self, change: str, pod: Object, before: Object | None) -> None:
        uid, gang = pod["metadata"]["uid"], gang_of(pod)
        if change == "DELETED" or has_ended(pod):
            self._failures.pop(uid, None)
            self._queue.remove(uid)
            node = self._cache.remove_pod(uid)
            if node is not None:
                self._queue.room_freed(node)
        elif pod["spec"].get("nodeName"):
            self._failures.pop(uid, None)
            self._queue.remove(uid)
            if not self._cache.put_pod(pod):
                return
            self._queue.pod_assigned()
        elif not self._is_schedulable(pod):
            self._queue.remove(uid)
            return
        elif not self._cache.is_assumed(uid) and uid not in self._backing_off:
            self._queue.put(pod)
            self._writes.report()  # it may share an answer that is known already
            if before is not None and _annotations(before) == _annotations(pod):
                gang = None  # the gang is as it was
        if gang is not None:
            self._queue.gang_changed(gang)
        self._changed.set()

    def _claim_changed(self, _change: str, claim: Object, _before: Object | None) -> None:
        self._queue.claim_changed(*key_of(claim))
        self._changed.set()

    def _volume_changed(self, _change: str, volume: Object, before: Object | None) -> None:
        """Concerns the claim that the volume is for, or the unbound claims of its class while it is for none."""
        for state in (volume, before):
            if state is not None and (reference := state["spec"].get("claimRef")):
                self._queue.claim_changed(reference.get("namespace", ""), reference["name"])
        if not volume["spec"].get("claimRef"):
            self._claims_changed(self._claims.by("unbound", f"class {class_of(volume)}"))
        self._changed.set()

    def _class_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        self._claims_changed(unbound_claims_of(self._claims, obj, before))
        self._changed.set()

    def _claims_changed(self, claims: list[Object]) -> None:
        for claim in claims:
            self._queue.claim_changed(*key_of(claim))

    def _is_schedulable(self, pod: Object) -> bool:
        spec = pod["spec"]
        if pod["metadata"].get("deletionTimestamp") or spec.get("schedulingGates"):
            return False
        return (spec.get("schedulerName") or NAME) == NAME

    # Cycles

    async def _run_cycles(self) -> None:
        for informer in self._sources:
            await informer.synced.wait()
        await self._first_node()
        started = time.perf_counter()
        while True:
            pod_class = self._queue.pop()
            if pod_class is None:
                self._changed.clear()
                await self._changed.wait()
                started = time.perf_counter()
                continue
            try:
                self._schedule(pod_class)
            except Exception:
                log.exception("scheduling failed: pods=%d first=%s", len(pod_class.pods), _names(pod_class))
                self._queue.set_answer(pod_class, None)
                asyncio.get_running_loop().call_later(_MAX_RETRY_SECONDS, self._activate, pod_class)
            await self._writes.wait_for_slot()
            if time.perf_counter() - started > _LONGEST_TURN:
                await asyncio.sleep(0)
                started = time.perf_counter()

    async def _first_node(self) -> None:
        """Wait for a node that starts with this scheduler: pods created before it is ready are not unschedulable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_NODE_SECONDS):
                while self._nodes.all() and all(_is_starting(info.node) for info in self._cache.nodes()):
                    self._changed.clear()
                    await self._changed.wait()

    def _activate(self, pod_class: PodClass) -> None:
        self._queue.activate(pod_class)
        self._changed.set()

    def _schedule(self, pod_class: PodClass) -> None:
        if pod_class.gang is not None:
            self._schedule_gang(pod_class, pod_class.gang)
            return
        pod = pod_class.head()
        if pod is None:
            return
        if self._volume_binding.is_binding(pod):
            self._queue.set_answer(pod_class, None)  # a change of its claims or volumes wakes it
            return
        answer = schedule_pod(
            pod,
            self._cache.nodes(),
            pre_filter_reason=self._volume_binding.pre_filter(pod),
            volume_filter=self._volume_binding.filter,
        )
        if isinstance(answer, Unschedulable):
            self._queue.set_answer(pod_class, answer)
            self._writes.report()
        else:
            self._assign(pod, answer)

    def _schedule_gang(self, pod_class: PodClass, gang: tuple[str, str]) -> None:
        waiting = list(pod_class.pods.values())
        if any(self._volume_binding.is_binding(pod) for pod in waiting):
            self._queue.set_answer(pod_class, None)
            return
        members = self._pods.by(_GANG_INDEX, "/".join(gang))
        blocked = next((reason for pod in waiting if (reason := self._volume_binding.pre_filter(pod))), "")
        answer: dict[str, str] | Unschedulable
        if blocked:
            answer = Unschedulable(messages.gang_pending(blocked), reasons=frozenset((blocked,)))
        else:
            answer = schedule_gang(
                waiting,
                self._cache.nodes(),
                size=gang_size(members),
                placed=len(members) - len(waiting),
                volume_filter=self._volume_binding.filter,
            )
        if isinstance(answer, Unschedulable):
            self._queue.set_answer(pod_class, answer)
            self._writes.report()
            return
        for pod in waiting:
            self._assign(pod, answer[pod["metadata"]["uid"]])

    def _assign(self, pod: Object, node: str) -> None:
        """Count the pod on its node and start to bind it."""
        self._queue.remove(pod["metadata"]["uid"])
        self._cache.assume(pod, node)
        info = self._cache.node(node)
        assert info is not None, "a node was chosen that is not in the cache"
        self._writes.bind(pod, info, self._binding_ended)

    def _binding_ended(self, pod: Object, node: NodeInfo, outcome: BindingOutcome) -> None:
        uid = pod["metadata"]["uid"]
        if outcome is BindingOutcome.BOUND:
            self._failures.pop(uid, None)
            return
        self._cache.forget(uid)
        self._queue.room_freed(node)
        self._changed.set()
        if outcome is BindingOutcome.WAITS_FOR_VOLUMES:
            binding = self._volume_binding
            self._put_back(pod)
            if binding.pre_bind_writes(pod, node) and not binding.is_binding(pod):
                self._queue.park(uid)  # the watch has not delivered the claims as they were written; it will
            return
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        delay = min(_MIN_RETRY_SECONDS * 2 ** min(failures - 1, 30), _MAX_RETRY_SECONDS)
        self._backing_off.add(uid)
        asyncio.get_running_loop().call_later(delay, self._put_back, pod)

    def _put_back(self, pod: Object) -> None:
        """Queue a pod that was not bound, if it still waits."""
        uid = pod["metadata"]["uid"]
        self._backing_off.discard(uid)
        current = self._pods.get(*key_of(pod))
        if current is None or current["metadata"]["uid"] != uid:
            self._failures.pop(uid, None)
        elif not current["spec"].get("nodeName") and not has_ended(current) and self._is_schedulable(current):
            self._queue.put(current)
            self._changed.set()


def _gangs_of(pod: Object) -> list[str]:
    gang = gang_of(pod)
    return ["/".join(gang)] if gang else []


def _is_starting(node: Object) -> bool:
    """Whether a node that has reported still has the taint of a new one."""
    return any(taint["key"] == NOT_READY for taint in node["spec"].get("taints") or ())


def _annotations(pod: Object) -> Object:
    return pod["metadata"].get("annotations") or {}


def _names(pod_class: PodClass) -> str:
    head = pod_class.head()
    return "/".join(key_of(head)) if head is not None else ""
