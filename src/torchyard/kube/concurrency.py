"""A limit on concurrent requests that adapts to the server (additive increase, multiplicative decrease).

The limit grows by one with every window of responses. When the server is overloaded, it halves, after a pause.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ConcurrencyLimiter:
    """`async with limiter:` around a request; `back_off` when the server reports overload."""

    def __init__(self, *, maximum: int = 64) -> None:
        self.maximum = maximum
        self.window = float(maximum)
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pause: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        if not self._has_room() or self._waiting:
            grant = asyncio.get_running_loop().create_future()
            self._waiting.append(grant)
            try:
                await grant
            except asyncio.CancelledError:
                if grant.done() and not grant.cancelled():  # granted at the same moment: pass it on
                    self._in_flight -= 1
                    self._grant_waiting()
                raise
        else:
            self._in_flight += 1

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._in_flight -= 1
        if kind is None:
            self.window = min(self.maximum, self.window + 1 / self.window)
        self._grant_waiting()

    def back_off(self, seconds: float) -> None:
        """Halve the window and start no request for this long. Further calls during the pause have no effect."""
        if self._pause is None:
            self.window = max(1.0, self.window / 2)
            self._pause = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._grant_waiting()

    def _has_room(self) -> bool:
        return self._pause is None and self._in_flight < int(self.window)

    def _grant_waiting(self) -> None:
        while self._waiting and self._has_room():
            grant = self._waiting.popleft()
            if not grant.done():
                self._in_flight += 1
                grant.set_result(None)
