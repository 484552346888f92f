"""A readiness loop of fifty lines: file descriptors to callbacks. It takes several megabytes less than asyncio."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

Callback = Callable[[], None]


class EpollLoop:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._callbacks: dict[int, Callback] = {}
        self._timers: list[tuple[float, Callback]] = []
        self._running = True

    def watch(self, descriptor: int, callback: Callback, events: int = READ) -> None:
        if descriptor in self._callbacks:
            self._poll.modify(descriptor, events)
        else:
            self._poll.register(descriptor, events)
        self._callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def run_callback(self, descriptor: int) -> None:
        """Call now what would be called when the descriptor is ready."""
        callback = self._callbacks.get(descriptor)
        if callback:
            callback()

    def call_later(self, seconds: float, callback: Callback) -> None:
        self._timers.append((time.monotonic() + seconds, callback))

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            for descriptor, _ in self._poll.poll(self._timeout()):
                self.run_callback(descriptor)
            now = time.monotonic()
            due = [callback for when, callback in self._timers if when <= now]
            self._timers = [timer for timer in self._timers if timer[0] > now]
            for callback in due:
                callback()

    def _timeout(self) -> float:
        return max(0.0, min(when for when, _ in self._timers) - time.monotonic()) if self._timers else -1
