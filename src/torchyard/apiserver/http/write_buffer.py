"""The writes of one event-loop iteration, sent back to back at its end.

A write to a client that sleeps costs several times as much as the write itself, since it wakes the client. Writes to
the store are committed in batches, so their responses come in batches too: sent one after the other, most find their
readers awake.
"""

from __future__ import annotations

import asyncio

# Beyond so many bytes nothing is held back: a large response or a fast stream has nothing to wait for.
_MAX_BYTES = 1 << 17


class WriteBuffer:
    """Keeps the order of the writes to a transport, provided that all of them go through the buffer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[asyncio.Transport, bytes]] = []
        self._size = 0

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append((transport, data))
        self._size += len(data)
        if self._size > _MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        pending, self._pending, self._size = self._pending, [], 0
        for transport, data in pending:
            transport.write(data)  # a closed transport ignores it
