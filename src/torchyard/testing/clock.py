"""Time that a test can advance: the wall clock of the plane, and the timers of its event loop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class AdjustableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced: what waits until then wakes up."""

    def __init__(self) -> None:
        super().__init__()
        self._advance_seconds = 0.0

    def time(self) -> float:
        return super().time() + self._advance_seconds

    def advance(self, seconds: float) -> None:
        """Call it in the loop's own thread."""
        self._advance_seconds += seconds


class AdjustableClock:
    """The wall clock, plus what the test has added."""

    def __init__(self, loop: AdjustableLoop) -> None:
        self._loop, self._added = loop, timedelta()

    def now(self) -> datetime:
        """The time of the plane, in UTC."""
        return datetime.now(UTC) + self._added

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once: deadlines end, retries and times to live are due."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._added += timedelta(seconds=seconds)
        self._loop.call_soon_threadsafe(self._loop.advance, seconds)
