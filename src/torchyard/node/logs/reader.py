"""Container logs with the options of a client: tail, since, follow, timestamps, limit.

Reads the CRI-format files that a shim writes, rotated ones included, and follows across a rotation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from torchyard.core.pod.logs import LogOptions
from torchyard.node.threads import in_thread

CHUNK = 256 * 1024
_POLL_SECONDS = 0.1


async def read(log: Path, options: LogOptions, *, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log's text in pieces. `ended` returns True when a follower need not wait for more."""
    left = options.limit
    async for piece in _pieces(log, options, ended):
        if left is None:
            yield piece
            continue
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _pieces(log: Path, options: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    files = _files(log)
    # What is written while the last lines are read would be more than the client has asked for.
    end = None
    start = (0, 0)
    if options.tail is not None:
        if files and not options.follow:
            end = files[-1].stat().st_size
        start = await in_thread(_tail_start, files, options.tail, end)
    reader = _CriParser(options)
    position = 0
    inode = 0
    for number, path in enumerate(files):
        if number < start[0]:
            continue
        position = start[1] if number == start[0] else 0
        with path.open("rb") as file:
            inode = path.stat().st_ino
            file.seek(position)
            last = end if number == len(files) - 1 else None
            while block := file.read(CHUNK if last is None else max(0, min(CHUNK, last - position))):
                position += len(block)
                text = reader.feed(block)
                if text:
                    yield text
    if not options.follow:
        return
    async for text in _follow(log, reader, position, inode, ended=ended):
        yield text


async def _follow(
    log: Path, reader: _CriParser, position: int, inode: int, *, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    while not log.exists():
        if ended():
            return
        await asyncio.sleep(_POLL_SECONDS)
    file = log.open("rb")
    try:
        if inode:
            if log.stat().st_ino != inode:
                rotated = next((path for path in _files(log) if path.stat().st_ino == inode), log)
                file.close()
                file = rotated.open("rb")
            file.seek(position)
        while True:
            is_last = ended()
            block = file.read(CHUNK)
            if block:
                text = reader.feed(block)
                if text:
                    yield text
                continue
            if log.exists() and log.stat().st_ino != _inode(file.fileno()):
                newer = _next_after(log, _inode(file.fileno()))
                file.close()
                file = newer.open("rb")
                continue
            if is_last:
                return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        file.close()


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def _next_after(log: Path, inode: int) -> Path:
    """The file written after the one with that inode; the oldest one if that was removed already."""
    files = _files(log)
    for number, path in enumerate(files[:-1]):
        if path.stat().st_ino == inode:
            return files[number + 1]
    return files[0] if files else log


def _files(log: Path) -> list[Path]:
    """All files of a log, oldest first."""
    rotated = [path for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdecimal()]
    pieces = sorted(rotated, key=lambda path: int(path.suffix[1:]), reverse=True)
    return pieces + ([log] if log.exists() else [])


def _tail_start(files: list[Path], needed: int, last_end: int | None) -> tuple[int, int]:
    """(file, offset) of the last whole lines, found from the end; `last_end` is that of the last file, if not now."""
    if needed == 0:
        size = files[-1].stat().st_size if files else 0
        return len(files) - 1, size if last_end is None else last_end
    for number in range(len(files) - 1, -1, -1):
        with files[number].open("rb") as file:
            end = file.seek(0, 2)
            if last_end is not None and number == len(files) - 1:
                end = min(end, last_end)
            rest = b""
            while end > 0:
                size = min(CHUNK, end)
                end -= size
                file.seek(end)
                rest = file.read(size) + rest
                whole = sum(b" F " in line[:64] for line in rest.splitlines()[1:])
                if whole > needed:
                    return number, end + _offset_of_last(rest, needed)
            lines = rest.splitlines(keepends=True)
            whole = sum(b" F " in line[:64] for line in lines)
            if whole >= needed:
                return number, _offset_of_last(rest, needed)
            needed -= whole
    return 0, 0


def _offset_of_last(block: bytes, needed: int) -> int:
    """Where the last `needed` whole lines of a block begin, their partial pieces included."""
    lines = block.splitlines(keepends=True)
    count = 0
    for number in range(len(lines) - 1, -1, -1):
        if b" F " in lines[number][:64]:
            if count == needed:
                return sum(len(line) for line in lines[: number + 1])
            count += 1
    return 0


class _CriParser:
    """Turns CRI lines back into what the container printed."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._rest = b""
        self._partial = False  # the last entry was partial: the next one continues its line

    def feed(self, block: bytes) -> bytes:
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        options, since = self._options, self._options.since.encode()
        out: list[bytes] = []
        for line in lines:
            timestamp, _, tail = line.partition(b" ")
            stream, _, tail = tail.partition(b" ")
            tag, _, text = tail.partition(b" ")
            if (since and timestamp < since) or (options.stream and stream != options.stream.encode()):
                continue
            if options.timestamps and not self._partial:
                out += (timestamp, b" ")
            out.append(text)
            self._partial = tag == b"P"
            if not self._partial:
                out.append(b"\n")
        return b"".join(out)
