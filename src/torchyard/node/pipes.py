"""Pipes and terminals for asyncio, without a thread or a buffer in between."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable

CHUNK = 256 * 1024
_F_SETPIPE_SZ = 1031


async def _wait_ready(descriptor: int, watch: Callable[..., None], unwatch: Callable[[int], object]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(descriptor, wake)
    try:
        await ready
    finally:
        unwatch(descriptor)


class ReadEnd:
    """Reads and closes a descriptor. A terminal whose other side is gone reads as ended."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor

    async def read(self) -> bytes:
        loop = asyncio.get_running_loop()
        while self.descriptor >= 0:
            try:
                return os.read(self.descriptor, CHUNK)
            except BlockingIOError:
                await _wait_ready(self.descriptor, loop.add_reader, loop.remove_reader)
            except OSError:
                return b""
        return b""

    async def pieces(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class WriteEnd:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor

    async def write(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        view = memoryview(data)
        while view and self.descriptor >= 0:
            try:
                view = view[os.write(self.descriptor, view) :]
            except BlockingIOError:
                await _wait_ready(self.descriptor, loop.add_writer, loop.remove_writer)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def wide_pipe() -> tuple[int, int]:
    """A pipe with a buffer of a megabyte where the machine allows it: fewer wake-ups for bulk data."""
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(read, _F_SETPIPE_SZ, 1 << 20)
    return read, write
