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


class Compactor:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            compacted = self._registry.store.compact()
            expired = await self.expire_events(self._registry.clock())
            if compacted or expired:
                log.debug("store compacted: revisions=%d expired_events=%d", compacted, expired)

    async def expire_events(self, now: datetime) -> int:
        """Delete the Events that have not been updated for an hour; returns their number."""
        store = self._registry.store
        expired = [record for record in store.collection("/events/").all() if _last_seen(record, now) < now - EVENT_TTL]
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
