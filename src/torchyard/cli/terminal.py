"""The user's terminal as the terminal of a remote process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator

from torchyard.kube.container_streams import STDERR


@contextlib.contextmanager
def raw_mode() -> Iterator[None]:
    """Let the remote terminal handle every key, Ctrl-C included; restore the terminal at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def read_input() -> AsyncIterator[bytes]:
    """Yield what standard input has, a terminal, a pipe or a file, until its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    except ValueError:  # a file
        while data := await asyncio.to_thread(sys.stdin.buffer.read, 1 << 16):
            yield data
        return
    while data := await reader.read(1 << 16):
        yield data


async def terminal_sizes() -> AsyncIterator[tuple[int, int]]:
    """Yield the size of the terminal, and again whenever it changes."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            yield shutil.get_terminal_size()
            await changed.wait()
            changed.clear()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def write_output(channel: int, data: bytes) -> None:
    """Write to standard output or standard error at once, also if it is a terminal in raw mode."""
    descriptor = 2 if channel == STDERR else 1
    view = memoryview(data)
    while view:
        view = view[_write(descriptor, view) :]


def _write(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:  # a terminal shares its mode with standard input
        os.set_blocking(descriptor, True)
        return 0
