"""Where the asynchronous client runs for callers that are not: in a thread of its own.

So it works in a notebook too, whose own loop runs already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="torchyard-sdk", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work answers; whoever is interrupted meanwhile (Ctrl-C) ends the work too."""
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def each(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """What comes out of a stream, until its end or until the caller has enough."""

        async def following() -> list[T]:
            async for one in stream:
                return [one]
            return []

        try:
            while found := self.run(following()):
                yield found[0]
        finally:
            self.run(_closed(stream))

    def close(self) -> None:
        if not self._loop.is_closed():
            self.run(asyncio.sleep(0.01))  # what was told to close does so in the loop's next turn
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _closed(stream: AsyncGenerator[Any, None]) -> None:
    await stream.aclose()
