"""Reading and writing pipes and terminals from asyncio, with no thread and no buffer in between."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable

BLOCK = 256 * 1024
_F_SETPIPE_SZ = 1031


async def _ready(descriptor: int, watch: Callable[..., None], forget: Callable[[int], object]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(descriptor, wake)
    try:
        await ready
    finally:
        forget(descriptor)


class ReadEnd:
    """Ours to read and to close. A terminal whose other side is gone reads as ended."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor

    async def read(self) -> bytes:
        loop = asyncio.get_running_loop()
        while self.descriptor >= 0:
            try:
                return os.read(self.descriptor, BLOCK)
            except BlockingIOError:
                await _ready(self.descriptor, loop.add_reader, loop.remove_reader)
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
                await _ready(self.descriptor, loop.add_writer, loop.remove_writer)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def wide_pipe() -> tuple[int, int]:
    """A pipe with room for a megabyte where the machine allows it: fewer turns for bulk data."""
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(read, _F_SETPIPE_SZ, 1 << 20)
    return read, write
