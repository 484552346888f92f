"""An event loop in a thread of its own, for synchronous callers of the asynchronous client.

This also works in a notebook, where an event loop already runs in the caller's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines and asynchronous generators for a synchronous caller."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="torchyard-sdk", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. An interrupt of the caller (Ctrl-C) also cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yield the items of a stream; close the stream at its end or when the caller stops."""

        async def next_item() -> list[T]:
            async for item in stream:
                return [item]
            return []

        try:
            while items := self.run(next_item()):
                yield items[0]
        finally:
            self.run(_close(stream))

    def close(self) -> None:
        if not self._loop.is_closed():
            self.run(asyncio.sleep(0.01))  # transports that were closed finish in the loop's next iteration
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _close(stream: AsyncGenerator[Any, None]) -> None:
    await stream.aclose()
