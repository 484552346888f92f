"""What the server does now and then: forget old history, expire events."""

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
EVENT_LIFE = timedelta(hours=1)
PERIOD = 30.0


class Compactor:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            gone = self._registry.store.compact()
            expired = await self.expire_events(self._registry.clock())
            if gone or expired:
                log.debug("forgot %d old revisions, expired %d events", gone, expired)

    async def expire_events(self, now: datetime) -> int:
        """Delete events nobody has added to for an hour; answers how many."""
        store = self._registry.store
        old = [one for one in store.collection("/events/").all() if _last_seen(one, now) < now - EVENT_LIFE]
        for record in old:
            try:
                await store.delete(record.key, Draft(record.object()), expected=record.rev)
            except RevisionConflict:
                continue  # somebody has just added to it
        return len(old)


def _last_seen(record: Record, now: datetime) -> datetime:
    """When an event was last written, from the times it carries; one that carries none is new."""
    event = record.object()
    series = event.get("series") or {}
    said = [
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ]
    moments = []
    for text in said:
        if text:
            try:
                moments.append(parse_rfc3339(text))
            except TimeError:
                continue
    return max(moments, default=now)
