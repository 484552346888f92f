"""A container's output: from its pipes to CRI-format log files and to attached clients.

A line on disk is `2026-11-15T10:00:00.123456789Z stdout F text`; `P` marks a part of a line longer than 16 kB.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

LINE_LIMIT = 16 * 1024
CHUNK = 64 * 1024
DRAWN_SECONDS = 1.0
ATTACH_BUFFER_LIMIT = 256 * 1024
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def timestamp(now_ns: int | None = None) -> str:
    """RFC 3339 with nanoseconds, as container runtimes write it."""
    seconds, nanoseconds = divmod(time.time_ns() if now_ns is None else now_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"


class LogFile:
    """An append-only log, rotated by size: `0.log`, then `0.log.1` (newest) … `0.log.N` (oldest)."""

    def __init__(self, path: str, *, max_bytes: int, max_files: int) -> None:
        self._path, self._max_bytes, self._max_files = path, max_bytes, max_files
        self._is_cut = False  # the last line is incomplete: the disk was full
        self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        view = memoryview(data)
        try:
            if self._is_cut:
                os.write(self._file, b"\n")
                self._is_cut = False
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            # The container runs on; what does not fit is not logged.
            self._is_cut = len(view) < len(data)
        self._size += len(data) - len(view)

    def _rotate(self) -> None:
        for number in range(self._max_files - 1, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        full = self._file
        try:
            self._open()
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            os.replace(f"{self._path}.1", self._path)  # there is no room for another file: the log goes on in this one
            return
        os.close(full)

    def close(self) -> None:
        os.close(self._file)


class CriLineFormatter:
    """Cuts a byte stream into CRI log lines; a line without its newline is held back until that arrives.

    Of a line that is drawn over, such as a progress bar, a part is written once a second: readers see the same text,
    but not only when the bar has ended.
    """

    def __init__(self, stream: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = stream.encode()
        self._rest = b""
        self._clock = clock
        self._drawn = 0.0  # when a part of a line that is drawn over was written

    def feed(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        head = timestamp().encode() + b" " + self._name
        full, partial = head + b" F ", head + b" P "
        if _has_long_line(data):
            return self._cut(data, full, partial)
        end = data.rfind(b"\n")
        self._rest = data[end + 1 :]
        # One pass over the bytes, without an object per line.
        lines = full + data[:end].replace(b"\n", b"\n" + full) + b"\n" if end >= 0 else b""
        return lines + self._take_drawn(partial) if b"\r" in self._rest else lines

    def _take_drawn(self, partial: bytes) -> bytes:
        now = self._clock()
        if now - self._drawn < DRAWN_SECONDS:
            return b""
        drawn, self._rest, self._drawn = self._rest, b"", now
        return partial + drawn + b"\n"

    def _cut(self, data: bytes, full: bytes, partial: bytes) -> bytes:
        lines = data.split(b"\n")
        self._rest = lines.pop()
        out: list[bytes] = []
        for line in lines:
            while len(line) > LINE_LIMIT:
                out += (partial, line[:LINE_LIMIT], b"\n")
                line = line[LINE_LIMIT:]  # noqa: PLW2901 - a line is consumed part by part
            out += (full, line, b"\n")
        while len(self._rest) > LINE_LIMIT:
            out += (partial, self._rest[:LINE_LIMIT], b"\n")
            self._rest = self._rest[LINE_LIMIT:]
        return b"".join(out)

    def finish(self) -> bytes:
        """The last line, if its newline never came; as containerd, a partial one, so that readers add no newline."""
        rest, self._rest = self._rest, b""
        return timestamp().encode() + b" " + self._name + b" P " + rest + b"\n" if rest else b""


def _has_long_line(data: bytes) -> bool:
    """Skip from newline to newline, at most a line's limit at a time."""
    at = 0
    while len(data) - at > LINE_LIMIT:
        newline = data.rfind(b"\n", at, at + LINE_LIMIT + 1)
        if newline < 0:
            return True
        at = newline + 1
    return False


class AttachedWriter:
    """A copy of one output stream for an attached client. A slow client slows the container; nothing is dropped."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.buffer = bytearray()

    def push(self, data: bytes) -> None:
        self.buffer += data
        self.flush()

    def flush(self) -> None:
        while self.buffer:
            try:
                written = os.write(self.descriptor, memoryview(self.buffer)[:CHUNK])
            except BlockingIOError:
                return
            del self.buffer[:written]

    @property
    def full(self) -> bool:
        return len(self.buffer) > ATTACH_BUFFER_LIMIT


class OutputStream:
    """One output pipe (or the terminal) of a container."""

    def __init__(self, descriptor: int, name: str, log: LogFile) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor, self.name = descriptor, name
        self._log, self._formatter = log, CriLineFormatter(name)
        self.attached: list[AttachedWriter] = []
        self.ended = False

    def copy(self, drop_attached: Callable[[AttachedWriter], None], *, limit: int = 16) -> bool:
        """Copy what can be read, at most `limit` chunks so that other streams progress. False at the end."""
        for _ in range(limit):
            try:
                data = os.read(self.descriptor, CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                data = b""  # a terminal whose last user is gone reads as EIO
            if not data:
                self.finish()
                return False
            lines = self._formatter.feed(data)
            if lines:
                self._log.write(lines)
            for writer in tuple(self.attached):
                try:
                    writer.push(data)
                except OSError:
                    drop_attached(writer)
            if len(data) < CHUNK:
                return True
        return True

    def finish(self) -> None:
        if not self.ended:
            self.ended = True
            rest = self._formatter.finish()
            if rest:
                self._log.write(rest)
