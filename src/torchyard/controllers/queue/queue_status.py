"""Writes the statuses of queues, and sets their metrics: whether they are active, their usage, their workloads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, LOCAL_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.queue_status import cluster_queue_status, local_queue_status
from torchyard.core.queue.workload_info import Key
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_DELAY = 0.1  # seconds from a change to the status
# While workloads are admitted, statuses take a twentieth of the time: a pause of nineteen times their length follows.
_PAUSE_FACTOR, _MAX_PAUSE = 19.0, 60.0


class QueueStatusController:
    def __init__(self, store: QueueStore, metrics: QueueMetrics) -> None:
        self._store, self._metrics = store, metrics
        self._changed = asyncio.Event()
        store.on_change(self._changed.set)

    async def run(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self._store.informers))
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DELAY)
            self._changed.clear()
            started = time.perf_counter()
            await self._write_changed()
            await self._pause(min((time.perf_counter() - started) * _PAUSE_FACTOR, _MAX_PAUSE))

    async def _pause(self, seconds: float) -> None:
        """Only while workloads are being admitted: the status of an idle queue must not be out of date."""
        end = time.perf_counter() + seconds
        while self._store.is_busy():
            left = end - time.perf_counter()
            if left <= 0:
                return
            await asyncio.sleep(min(left, _DELAY))

    async def _write_changed(self) -> None:
        state = self._store.state
        changed, state.cache.changed = state.cache.changed, set()
        if not changed:
            return
        local_queues: dict[str, list[Key]] = {}  # by ClusterQueue
        for key, spec in state.cache.local_queues.items():
            local_queues.setdefault(spec.get("clusterQueue", ""), []).append(key)
        now = to_rfc3339(self._store.clock())
        for name in sorted(changed):
            try:
                await self._write_statuses(name, local_queues.get(name, ()), now)
            except Exception as error:
                state.cache.changed.add(name)  # written again after the next pause
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._changed.set)
                log.warning(
                    "queue status not written: cluster_queue=%s retry_seconds=%g error=%s",
                    name,
                    _RETRY_SECONDS,
                    error,
                    exc_info=not isinstance(error, YardError),
                )

    async def _write_statuses(self, name: str, local_queues: Iterable[Key], now: str) -> None:
        """Write the status of a ClusterQueue and of its LocalQueues. Any of them may be deleted meanwhile."""
        cache = self._store.state.cache
        cq = cache.cluster_queues.get(name)
        if cq is not None:
            status = cluster_queue_status(cq, now)
            await self._write(CLUSTER_QUEUES, self._store.cluster_queues, ("", name), status)
            self._set_metrics(cq)
        for key in local_queues:
            if key in cache.local_queues:
                status = local_queue_status(key, self._store.state, now)
                await self._write(LOCAL_QUEUES, self._store.local_queues, key, status)

    def _set_metrics(self, cq: ClusterQueue) -> None:
        is_inactive = cq.inactive is not None
        heaps = cq.heaps.values()
        inadmissible = sum(len(heap.workloads) for heap in heaps if is_inactive or heap.is_inadmissible)
        admitted = sum(info.is_admitted for info in cq.reserving.values())
        active = len(cq.pending) - inadmissible
        self._metrics.set_workloads(cq.name, active=active, inadmissible=inadmissible, admitted=admitted)
        self._metrics.set_usage(cq.name, cq.spec.cohort, cq.node.usage)

    async def _write(self, gvr: GroupVersionResource, informer: Informer, key: Key, status: Object) -> None:
        obj = informer.get(*key)
        if obj is None:
            return
        before = obj.get("status") or {}
        for condition in status["conditions"]:
            for known in before.get("conditions") or ():
                if known["type"] == condition["type"] and known["status"] == condition["status"]:
                    condition["lastTransitionTime"] = known["lastTransitionTime"]
        if before == {**before, **status}:
            return
        patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": status}
        try:
            await self._store.client.patch(gvr, key[1], patch, key[0], subresource="status")
        except StatusError as error:
            if error.status not in (404, 409):
                raise
