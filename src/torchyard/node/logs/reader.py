"""Container logs as a client asks for them: tail, since, follow, previous, timestamps, limit.

Reads the CRI-format files a shim writes, rotated ones included, and follows across a rotation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from torchyard.core.pod.logs import LogOptions

BLOCK = 256 * 1024
_POLL_SECONDS = 0.1


async def read(log: Path, wanted: LogOptions, *, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log's text, piece by piece. `ended` tells a follower that no more will come."""
    left = wanted.limit
    async for piece in _pieces(log, wanted, ended):
        if left is None:
            yield piece
            continue
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _pieces(log: Path, wanted: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    files = _files(log)
    if wanted.tail is not None:
        start = await asyncio.to_thread(_tail_start, files, wanted)
    else:
        start = (0, 0)
    reader = _Reader(wanted)
    position = 0
    inode = 0
    for number, path in enumerate(files):
        if number < start[0]:
            continue
        position = start[1] if number == start[0] else 0
        with path.open("rb") as file:
            inode = path.stat().st_ino
            file.seek(position)
            while block := file.read(BLOCK):
                position += len(block)
                text = reader.feed(block)
                if text:
                    yield text
    if not wanted.follow:
        return
    async for text in _follow(log, reader, position, inode, ended=ended):
        yield text


async def _follow(
    log: Path, reader: _Reader, position: int, inode: int, *, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    while not log.exists():
        if ended():
            return
        await asyncio.sleep(_POLL_SECONDS)
    file = log.open("rb")
    try:
        if inode:
            if log.stat().st_ino != inode:
                rotated = next((one for one in _files(log) if one.stat().st_ino == inode), log)
                file.close()
                file = rotated.open("rb")
            file.seek(position)
        while True:
            last_look = ended()
            block = file.read(BLOCK)
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
            if last_look:
                return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        file.close()


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def _next_after(log: Path, inode: int) -> Path:
    """The file written after the one with that inode; the current one if that is forgotten already."""
    files = _files(log)
    for number, path in enumerate(files[:-1]):
        if path.stat().st_ino == inode:
            return files[number + 1]
    return files[0] if files else log


def _files(log: Path) -> list[Path]:
    """All pieces of a log, oldest first."""
    rotated = [path for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdigit()]
    pieces = sorted(rotated, key=lambda path: int(path.suffix[1:]), reverse=True)
    return pieces + ([log] if log.exists() else [])


def _tail_start(files: list[Path], wanted: LogOptions) -> tuple[int, int]:
    """(file, offset) of the last `tail` whole lines, found from the end."""
    needed = wanted.tail or 0
    if needed == 0:
        return len(files) - 1, files[-1].stat().st_size if files else 0
    for number in range(len(files) - 1, -1, -1):
        with files[number].open("rb") as file:
            end = file.seek(0, 2)
            rest = b""
            while end > 0:
                size = min(BLOCK, end)
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


class _Reader:
    """From CRI lines back to what the container printed."""

    def __init__(self, wanted: LogOptions) -> None:
        self._wanted = wanted
        self._rest = b""
        self._inside = False  # the last piece was partial, the next one continues its line

    def feed(self, block: bytes) -> bytes:
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        wanted, since = self._wanted, self._wanted.since.encode()
        out: list[bytes] = []
        for line in lines:
            stamp, _, tail = line.partition(b" ")
            stream, _, tail = tail.partition(b" ")
            tag, _, text = tail.partition(b" ")
            if (since and stamp < since) or (wanted.stream and stream != wanted.stream.encode()):
                continue
            if wanted.timestamps and not self._inside:
                out += (stamp, b" ")
            out.append(text)
            self._inside = tag == b"P"
            if not self._inside:
                out.append(b"\n")
        return b"".join(out)
