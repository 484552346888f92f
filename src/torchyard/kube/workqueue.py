"""A work queue as in client-go: each key once, never processed by two workers at a time, retries with backoff.

Priority keys go first, but every sixteenth key is taken from the others, so that none starves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
_STARVATION_INTERVAL = 16


class WorkQueue(Generic[K]):
    """A key added while it is processed is queued again afterwards; a key added twice while it waits is queued once."""

    def __init__(self, *, min_delay: float = 0.005, max_delay: float = 300.0) -> None:
        self._min_delay, self._max_delay = min_delay, max_delay
        self._priority: deque[K] = deque()
        self._waiting: deque[K] = deque()
        self._gets = 0
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._available = asyncio.Event()
        self.adds = self.retries = 0

    def add(self, key: K, *, priority: bool = False) -> None:
        """Add a key. `priority`: before keys without it; a key that already waits keeps its position."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        self.adds += 1
        if key not in self._processing:
            (self._priority if priority else self._waiting).append(key)
            self._available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after a delay. Of several delays of a key, the earliest counts."""
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
        """Return the next key. The worker must call `done` when it has finished."""
        while not len(self):
            self._available.clear()
            await self._available.wait()
        key = self._next().popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def _next(self) -> deque[K]:
        self._gets += 1
        take_normal = self._gets % _STARVATION_INTERVAL == 0
        return self._waiting if not self._priority or (self._waiting and take_normal) else self._priority

    def done(self, key: K) -> None:
        self._processing.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._available.set()

    def add_rate_limited(self, key: K) -> float:
        """Add a key again after a delay that doubles with every failure; return the delay."""
        self.retries += 1
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._min_delay * (1 << min(failures, 30)), self._max_delay)
        self.add_after(key, delay)
        return delay

    def has_failed(self, key: K) -> bool:
        """Whether the last attempt failed."""
        return key in self._failures

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def __len__(self) -> int:
        return len(self._priority) + len(self._waiting)
