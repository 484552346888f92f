"""Samples what LocalQueues consume, for admission fair sharing, and writes it into their statuses."""

from __future__ import annotations

import asyncio
import logging

from torchyard.api.errors import YardError
from torchyard.api.times import to_rfc3339
from torchyard.controllers.queue.gvr import LOCAL_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.queue_status import write_queue_status
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.state import sample_usage
from torchyard.core.queue.workload_info import Key

log = logging.getLogger(__name__)

_MAX_PAUSE = 1.0  # seconds until a new LocalQueue, or one that was charged for a workload, is sampled


class LocalQueueUsageController:
    """`run` until cancelled."""

    def __init__(self, store: QueueStore, metrics: QueueMetrics) -> None:
        self._store, self._metrics = store, metrics

    async def run(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self._store.informers))
        usage = self._store.state.usage
        pause = _MAX_PAUSE if usage is None else min(_MAX_PAUSE, usage.settings.sampling_interval)
        while True:
            sampled = sample_usage(self._store.state, self._store.now())
            for key in sampled:
                await self._write(key)
            if sampled:
                self._store.notify()  # other workloads may be first now
            await asyncio.sleep(pause)

    async def _write(self, key: Key) -> None:
        usage = self._store.state.usage
        if usage is None:
            return
        self._metrics.set_local_queue_usage(*key, usage.usage(key))
        consumed = {
            "consumedResources": usage.consumed_resources(key),
            "lastUpdate": to_rfc3339(self._store.clock()),
        }
        status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": consumed}}
        try:
            await write_queue_status(self._store.client, LOCAL_QUEUES, self._store.local_queues, key, status)
        except YardError as error:  # written again with the next sample
            log.warning("usage of a LocalQueue not written: local_queue=%s/%s error=%s", *key, error)
