"""Writes the statuses of queues, and sets their metrics: whether they are active, their usage, their workloads."""

from __future__ import annotations

import asyncio
import logging
import time

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import dominant_resource_share
from torchyard.core.queue.queue_status import cluster_queue_status, fair_sharing_status, local_queue_status
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.workload_info import Key
from torchyard.kube.client import Client
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
        """Only of the queues that changed, however many there are."""
        state, now = self._store.state, to_rfc3339(self._store.clock())
        cache, is_fair = state.cache, state.fair_sharing is not None
        changed, cache.changed = cache.changed, set()
        local_queues, cache.changed_local_queues = cache.changed_local_queues, set()
        cohorts, cache.changed_cohorts = cache.changed_cohorts, set()
        for name in sorted(changed):
            if (cq := cache.cluster_queues.get(name)) is not None:
                status = cluster_queue_status(cq, now, is_fair=is_fair)
                if not await self._try_write(CLUSTER_QUEUES, self._store.cluster_queues, ("", name), status):
                    cache.changed.add(name)
                self._set_metrics(cq, is_fair=is_fair)
                cohorts |= _ancestors(cq.node)
        for key in sorted(local_queues):
            if key in cache.local_queues:
                status = local_queue_status(key, state, now)
                if not await self._try_write(LOCAL_QUEUES, self._store.local_queues, key, status):
                    cache.changed_local_queues.add(key)
        for name in sorted(cohorts) if is_fair else ():
            if (node := cache.cohorts.get(name)) is not None:
                status = fair_sharing_status(node)
                if not await self._try_write(COHORTS, self._store.cohorts, ("", name), status):
                    cache.changed_cohorts.add(name)
                self._metrics.set_cohort_share(name, dominant_resource_share(node).value)

    async def _try_write(self, gvr: GroupVersionResource, informer: Informer, key: Key, status: Object) -> bool:
        """Whether it was written. Any object may be deleted meanwhile."""
        try:
            await write_queue_status(self._store.client, gvr, informer, key, status)
        except Exception as error:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._changed.set)
            log.warning(
                "queue status not written: resource=%s name=%s retry_seconds=%g error=%s",
                gvr.plural,
                "/".join(filter(None, key)),
                _RETRY_SECONDS,
                error,
                exc_info=not isinstance(error, YardError),
            )
            return False
        return True

    def _set_metrics(self, cq: ClusterQueue, *, is_fair: bool) -> None:
        is_inactive = cq.inactive is not None
        heaps = cq.heaps.values()
        inadmissible = sum(len(heap.workloads) for heap in heaps if is_inactive or heap.is_inadmissible)
        admitted = sum(info.is_admitted for info in cq.reserving.values())
        active = len(cq.pending) - inadmissible
        self._metrics.set_workloads(cq.name, active=active, inadmissible=inadmissible, admitted=admitted)
        self._metrics.set_usage(cq.name, cq.spec.cohort, cq.node.usage)
        if is_fair:
            self._metrics.set_share(cq.name, cq.spec.cohort, dominant_resource_share(cq.node).value)


async def write_queue_status(
    client: Client, gvr: GroupVersionResource, informer: Informer, key: Key, status: Object
) -> None:
    """Write the parts of a status that changed. Does nothing if the object is gone."""
    obj = informer.get(*key)
    if obj is None:
        return
    before = obj.get("status") or {}
    for condition in status.get("conditions") or ():
        for known in before.get("conditions") or ():
            if known["type"] == condition["type"] and known["status"] == condition["status"]:
                condition["lastTransitionTime"] = known["lastTransitionTime"]
    if before == {**before, **status}:
        return
    patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": status}
    try:
        await client.patch(gvr, key[1], patch, key[0], subresource="status")
    except StatusError as error:
        if error.status not in (404, 409):
            raise


def _ancestors(node: QuotaNode) -> set[str]:
    names: set[str] = set()
    while node.parent is not None:
        node = node.parent
        names.add(node.name)
    return names
