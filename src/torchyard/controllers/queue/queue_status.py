"""What queues show of themselves: whether they are active, how much is used, how many wait."""

from __future__ import annotations

import asyncio
import logging
import time

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.queue.metrics import Metrics
from torchyard.controllers.queue.refs import CLUSTER_QUEUES, LOCAL_QUEUES
from torchyard.controllers.queue.stores import State
from torchyard.core.queue.queue_status import cluster_queue_status, local_queue_status
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

# Figures follow events with a delay, and take a twentieth of the time while there is somebody to admit.
_DELAY, _REST, _LONGEST_REST = 0.1, 19.0, 60.0


class Figures:
    def __init__(self, state: State, metrics: Metrics) -> None:
        self._state, self._metrics = state, metrics
        self._changed = asyncio.Event()
        state.on_change(self._changed.set)

    async def run(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self._state.informers))
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DELAY)
            self._changed.clear()
            started = time.perf_counter()
            try:
                await self._write_changed()
            except YardError as error:
                log.warning("figures of queues: %s", error)
            await self._rest(min((time.perf_counter() - started) * _REST, _LONGEST_REST))

    async def _rest(self, seconds: float) -> None:
        """Only while others are busy: who looks at a calm queue is not shown what was."""
        end = time.perf_counter() + seconds
        while self._state.is_busy():
            left = end - time.perf_counter()
            if left <= 0:
                return
            await asyncio.sleep(min(left, _DELAY))

    async def _write_changed(self) -> None:
        book = self._state.book
        changed, book.changed = book.changed, set()
        if not changed:
            return
        doors: dict[str, list[tuple[str, str]]] = {}
        for key, spec in book.local.items():
            doors.setdefault(spec.get("clusterQueue", ""), []).append(key)
        now = to_rfc3339(self._state.clock())
        for name in sorted(changed):
            pool = book.pools.get(name)
            if pool is not None:
                await self._write(
                    CLUSTER_QUEUES, self._state.cluster_queues, ("", name), cluster_queue_status(pool, now)
                )
                admitted = sum(item.is_admitted for item in pool.holding.values())
                is_shut = pool.inactive is not None
                blocked = sum(len(lane.items) for lane in pool.lanes.values() if is_shut or lane.is_blocked)
                active = len(pool.waiting) - blocked
                cohort = pool.queue.cohort
                self._metrics.figures(name, active=active, inadmissible=blocked, admitted=admitted)
                self._metrics.usage(name, cohort, pool.node.usage)
            for key in doors.get(name, ()):
                status = local_queue_status(key, book, now)
                await self._write(LOCAL_QUEUES, self._state.local_queues, key, status)

    async def _write(self, ref: GroupVersionResource, informer: Informer, key: tuple[str, str], status: Object) -> None:
        obj = informer.get(*key)
        if obj is None:
            return
        before = obj.get("status") or {}
        for one in status["conditions"]:
            for known in before.get("conditions") or ():
                if known["type"] == one["type"] and known["status"] == one["status"]:
                    one["lastTransitionTime"] = known["lastTransitionTime"]
        if before == {**before, **status}:
            return
        patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": status}
        try:
            await self._state.client.patch(ref, key[1], patch, key[0], subresource="status")
        except StatusError as error:
            if error.status not in (404, 409):
                raise
