"""What one turn of the loop has to say, to whomever, written back to back at its end.

To write to a client that sleeps costs the price of waking it, several times that of the write itself. Answers come in
bunches, since writes are committed in bunches: sent one after the other they find their readers awake.
"""

from __future__ import annotations

import asyncio

# Beyond this nothing is held back: a large answer or a fast stream has nothing to wait for.
_MOST = 1 << 17


class WriteBuffer:
    """Keeps the order of what is sent to one transport as long as nobody writes to it past the box."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._size = 0

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.empty)
        self._waiting.append((transport, data))
        self._size += len(data)
        if self._size > _MOST:
            self.empty()

    def empty(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        for transport, data in waiting:
            transport.write(data)  # to one that is closed: nothing happens
