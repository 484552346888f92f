"""Periodic cleanup: compacts the store's history and deletes expired Events."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict

log = logging.getLogger(__name__)

# As kube-apiserver's --event-ttl.
EVENT_TTL = timedelta(hours=1)
PERIOD = 30.0
# Between two steps of a compaction, so that it takes at most half of the time.
_STEP_PAUSE = 0.01
_EVENTS_PER_STEP = 100


class Compactor:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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
        events = store.collection("/events/").all()
        expired: list[Record] = []
        for at in range(0, len(events), _EVENTS_PER_STEP):
            step = events[at : at + _EVENTS_PER_STEP]
            expired += [record for record in step if _last_seen(record, now) < now - EVENT_TTL]
            await asyncio.sleep(0)
        for record in expired:
            try:
                await store.delete(record.key, Draft(record.object()), expected=record.rev)
            except RevisionConflict:
                continue  # updated just now
        return len(expired)


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
