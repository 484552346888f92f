"""Keys waiting to be worked on: each once, never by two workers at a time, failures with growing pauses.

Some may go ahead of the others; every sixteenth turn is the others' even then, so that nobody waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
_OTHERS_TURN = 16


class WorkQueue(Generic[K]):
    """A key added while it is worked on comes again afterwards; added twice while it waits it comes once."""

    def __init__(self, *, first_delay: float = 0.005, longest_delay: float = 300.0) -> None:
        self._first, self._longest = first_delay, longest_delay
        self._ahead: deque[K] = deque()
        self._waiting: deque[K] = deque()
        self._turns = 0
        self._dirty: set[K] = set()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._arrived = asyncio.Event()
        self.adds = self.retries = 0  # so far

    def add(self, key: K, *, priority: bool = False) -> None:
        """`ahead`: before those that are not; a key that waits already keeps its place."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        self.adds += 1
        if key not in self._busy:
            (self._ahead if priority else self._waiting).append(key)
            self._arrived.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add later; an earlier appointment of the same key stands, a later one is replaced."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            self.add(key)
            return
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def get(self) -> K:
        """The next key. The worker must call `done` when it has finished with it."""
        while not len(self):
            self._arrived.clear()
            await self._arrived.wait()
        key = self._next().popleft()
        self._dirty.discard(key)
        self._busy.add(key)
        return key

    def _next(self) -> deque[K]:
        self._turns += 1
        is_others_turn = self._turns % _OTHERS_TURN == 0
        return self._waiting if not self._ahead or (self._waiting and is_others_turn) else self._ahead

    def done(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._arrived.set()

    def add_rate_limited(self, key: K) -> float:
        """Add again after a pause that doubles with every failure; answers the pause."""
        self.retries += 1
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = min(self._first * (1 << min(failures, 30)), self._longest)
        self.add_after(key, pause)
        return pause

    def has_failed(self, key: K) -> bool:
        """Whether the last work on it did."""
        return key in self._failures

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def __len__(self) -> int:
        return len(self._ahead) + len(self._waiting)
