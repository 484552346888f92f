"""The last log lines of the plane's controllers, as the log of the pod that represents them.

The lines are kept in memory and start with the plane; the plane's own log file has everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from torchyard.api import errors
from torchyard.core.pod.logs import LogOptions

_KEPT = 5000
_POLL_SECONDS = 0.2


class _Line(NamedTuple):
    stamp: str  # RFC 3339 with nanoseconds, which compares as text
    text: str


class ControllerLog(logging.Handler):
    """A handler for the loggers whose lines are kept."""

    def __init__(self, max_lines: int = _KEPT) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines: deque[_Line] = deque(maxlen=max_lines)
        self._written = 0  # lines, dropped ones included

    def emit(self, record: logging.LogRecord) -> None:
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        for line in self.format(record).split("\n"):
            self._lines.append(_Line(stamp, line))
            self._written += 1

    async def read(self, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log as `kubectl logs` requests it. A follower is served until it disconnects or the server stops."""
        if options.previous:
            raise errors.bad_request(
                "the log of an earlier plane is not available here: this log starts with the plane"
            )
        lines = [line for line in self._lines if line.stamp >= options.since]
        position, bytes_left = self._written, options.limit
        if options.tail is not None:
            lines = lines[max(0, len(lines) - options.tail) :]
        while True:
            chunk = _text(lines, options)[:bytes_left]
            if chunk:
                yield chunk
            if bytes_left is not None:
                bytes_left -= len(chunk)
            if not options.follow or bytes_left == 0:
                return
            await asyncio.sleep(_POLL_SECONDS)
            new = min(self._written - position, len(self._lines))
            lines = list(islice(self._lines, len(self._lines) - new, None))
            position = self._written


def _text(lines: list[_Line], options: LogOptions) -> bytes:
    return "".join(f"{line.stamp} {line.text}\n" if options.timestamps else f"{line.text}\n" for line in lines).encode()
