"""The connections that have not proved yet that they belong to the job: few of them, and each only for a short time."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

DEADLINE = 30.0
"""Seconds in which a connection must authenticate."""
LIMIT = 2048
GRACE = 1.0
"""A connection younger than this many seconds is never closed in favor of another."""
REPORT_EVERY = 10.0


class HandshakeLimit(Exception):
    """Too many connections wait for authentication."""


class Handshakes:
    """Limits the connections that have not authenticated.

    At the limit, the oldest connection makes room: a peer of the job authenticates within milliseconds, a silent one
    does not.

    Args:
        limit: the number of connections; None for a fraction of the files that this process may open.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit or min(LIMIT, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._pending: dict[asyncio.StreamWriter, float] = {}
        self._last_report = float("-inf")
        self._unreported = 0

    def __len__(self) -> int:
        return len(self._pending)

    @asynccontextmanager
    async def authenticating(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Count a connection while it authenticates. Raises TimeoutError or HandshakeLimit."""
        now = time.monotonic()
        if len(self._pending) >= self._limit:
            oldest = next(iter(self._pending))
            if now - self._pending[oldest] < GRACE:
                raise HandshakeLimit
            del self._pending[oldest]
            oldest.transport.abort()
        self._pending[writer] = now
        try:
            async with asyncio.timeout(DEADLINE):
                yield
        finally:
            self._pending.pop(writer, None)

    def report(self, message: str) -> str | None:
        """Return the text of an event for a refused connection; None if one was reported a moment ago.

        A stranger must not fill the ledger.
        """
        now = time.monotonic()
        if now - self._last_report < REPORT_EVERY:
            self._unreported += 1
            return None
        suffix = f" ({self._unreported} more refusals since the last report)" if self._unreported else ""
        self._last_report, self._unreported = now, 0
        return message[:500] + suffix
