"""The API server's clock, which deadlines and times to live use.

The replicas and the API server, which sets the timestamps of objects, may disagree about the time; the server's clock
is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from torchyard.api.errors import YardError
from torchyard.kube.client import Transport

log = logging.getLogger(__name__)

SYNC_SECONDS = 300.0
# The Date header has whole seconds, and a response takes time.
TOLERANCE_SECONDS = 3.0


def local() -> datetime:
    return datetime.now(UTC)


class ServerClock:
    """`now` is the server's time as of the last `sync`; `run` syncs periodically."""

    def __init__(self, transport: Transport, own: Callable[[], datetime] = local) -> None:
        self._transport, self._own = transport, own
        self.offset = 0.0  # seconds by which the local clock is ahead of the server's

    def now(self) -> datetime:
        return self._own() - timedelta(seconds=self.offset)

    async def sync(self) -> None:
        answer = await self._transport.request("GET", "/version")
        date = answer.headers.get("date", "")
        if not date:
            return
        try:
            ahead = (self._own() - parsedate_to_datetime(date)).total_seconds()
        except (ValueError, TypeError):  # TypeError: without a zone
            log.warning("API server clock not read: date=%r", date)
            return
        ahead = ahead if abs(ahead) > TOLERANCE_SECONDS else 0.0
        if abs(ahead - self.offset) > TOLERANCE_SECONDS:
            log.warning("local clock differs from the API server's, which is used: offset_seconds=%.0f", ahead)
        self.offset = ahead

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            try:
                await self.sync()
            except YardError as error:
                log.warning("API server clock not read: error=%s", error)
