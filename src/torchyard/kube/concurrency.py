"""How many requests may be under way at once: as many as the server takes without complaint.

Grows by one with every window of answers; halves, after a pause, when the server says that it has no time.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ConcurrencyLimiter:
    """`async with limiter:` around a request; `back_off` when the server complained."""

    def __init__(self, *, maximum: int = 64) -> None:
        self.maximum = maximum
        self.window = float(maximum)
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pause: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        if not self._has_room() or self._waiting:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # the turn came just then: somebody else's now
                    self._under_way -= 1
                    self._next()
                raise
        else:
            self._under_way += 1

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._under_way -= 1
        if kind is None:
            self.window = min(self.maximum, self.window + 1 / self.window)
        self._next()

    def back_off(self, seconds: float) -> None:
        """Halve the window and begin nothing new for this long. Once per pause: what was under way complains too."""
        if self._pause is None:
            self.window = max(1.0, self.window / 2)
            self._pause = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._next()

    def _has_room(self) -> bool:
        return self._pause is None and self._under_way < int(self.window)

    def _next(self) -> None:
        while self._waiting and self._has_room():
            turn = self._waiting.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
