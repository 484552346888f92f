"""Periodic cleanup: compacts the store's history and deletes expired Events."""

from __future__ import annotations

import asyncio
import heapq
import logging
from datetime import datetime, timedelta
from itertools import islice

from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.store.watch import StoreEvent

log = logging.getLogger(__name__)

# As kube-apiserver's --event-ttl.
EVENT_TTL = timedelta(hours=1)
PERIOD = 30.0
# Between two steps of a compaction, so that it takes at most half of the time.
_STEP_PAUSE = 0.01
_EVENTS_PER_STEP = 100
_MIN_EVENTS_PER_PASS = 2000


class Compactor:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._unread: dict[str, None] = {}  # the keys of the Events that were written since the last pass
        # Every Event with its revision, the one that expires first at the front. An entry whose Event has another
        # revision by now is void.
        self._by_last_seen: list[tuple[datetime, str, int]] = []
        registry.store.listen("/events/", self._event_changed)

    def _event_changed(self, event: StoreEvent) -> None:
        self._unread[event.record.key] = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            compacted = await self.compact()
            expired = await self.expire_events(self._registry.clock())
            if compacted or expired:
                log.debug("store compacted: revisions=%d expired_events=%d", compacted, expired)

    async def compact(self) -> int:
        """Compact the store's history in steps, between which requests are served; returns the number of rows."""
        removed = 0
        for count in self._registry.store.compaction():
            removed += count
            await asyncio.sleep(_STEP_PAUSE)
        return removed

    async def expire_events(self, now: datetime) -> int:
        """Delete the Events that have not been updated for an hour; returns their number."""
        store = self._registry.store
        await self._read_changed(now)
        expired = 0
        while self._by_last_seen and self._by_last_seen[0][0] < now - EVENT_TTL:
            entry = heapq.heappop(self._by_last_seen)
            _, key, revision = entry
            record = store.get(key)
            if record is None or record.rev != revision:
                continue
            try:
                await store.delete(key, Draft(record.object()), expected=revision)
            except RevisionConflict:
                continue  # updated just now
            except BaseException:
                heapq.heappush(self._by_last_seen, entry)  # such as a full disk: it expires later
                raise
            expired += 1
        return expired

    async def _read_changed(self, now: datetime) -> None:
        """Take some of the Events that were written since they were last read.

        At the start these are all Events. Those that wait for another pass expire some minutes late.
        """
        store = self._registry.store
        count = max(_MIN_EVENTS_PER_PASS, len(self._unread) // 40)
        for _ in range(0, count, _EVENTS_PER_STEP):
            for key in list(islice(self._unread, _EVENTS_PER_STEP)):
                del self._unread[key]
                record = store.get(key)
                if record is not None:
                    heapq.heappush(self._by_last_seen, (_last_seen(record, now), key, record.rev))
            await asyncio.sleep(0)
        self._unread = dict(self._unread)  # without the gaps at its front


def _last_seen(record: Record, now: datetime) -> datetime:
    """When an Event was last updated, by its timestamps; one without any counts as new."""
    event = record.object()
    series = event.get("series") or {}
    timestamps = [
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ]
    times = []
    for timestamp in timestamps:
        if timestamp:
            try:
                times.append(parse_rfc3339(timestamp))
            except TimeError:
                continue
    return max(times, default=now)
