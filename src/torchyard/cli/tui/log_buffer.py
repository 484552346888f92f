"""The last lines of a job's logs, and the metrics in them."""

from __future__ import annotations

import re
from bisect import insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

from torchyard.api.times import TimeError, parse_rfc3339, to_rfc3339
from torchyard.core.progress.lines import metrics_of
from torchyard.core.run.line_splitter import LogLine

MAX_LINES = 20_000
TAIL_LINES = 2_000  # of each container, when the job is opened
_SPARE_LINES = 1_000  # are dropped together: the list is moved then
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?", re.ASCII)
_MAX_VALUES = 2_000
_MAX_CURVES = 100
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|^\w*(?:Error|Exception)\b|\b(?:ERROR|FATAL|CRITICAL)\b|Segmentation fault"
)


class BufferedLine(NamedTuple):
    time: str  # RFC 3339 in UTC with nine digits: the texts compare as the times do
    replica: str
    text: str


class LogBuffer:
    """`add` is called for every line, with its time in front; the lines of all replicas are in the order of time.

    `removed` counts the lines that were dropped at the beginning.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.lines: list[BufferedLine] = []
        self.removed = 0
        self.replicas: list[str] = []
        self._times: dict[str, str] = {}  # of the last line of each replica
        self.metrics: dict[tuple[str, str], deque[float]] = {}  # by name and replica

    def add(self, replica: str, line: LogLine) -> None:
        time, text = self._split_time(replica, line.text)
        self._read_metrics(replica, text)
        if line.overwritten:  # a progress bar: its last drawing follows
            return
        if len(self.lines) >= MAX_LINES + _SPARE_LINES:
            del self.lines[:_SPARE_LINES]
            self.removed += _SPARE_LINES
        insort(self.lines, BufferedLine(time, replica, text), key=attrgetter("time"))
        self._changed()

    def _split_time(self, replica: str, line: str) -> tuple[str, str]:
        """The time and the text. What was drawn over in one line has the time of the line."""
        if replica not in self._times:
            self.replicas = sorted([*self.replicas, replica])
        match = _TIME.match(line)
        if match is None:
            return self._times.setdefault(replica, ""), line
        self._times[replica] = _comparable(*match.groups(""))
        return self._times[replica], line[match.end() :]

    def _read_metrics(self, replica: str, text: str) -> None:
        for name, value in metrics_of(text[:1024]).items():
            values = self.metrics.get((name, replica))
            if values is None:
                if len(self.metrics) >= _MAX_CURVES:
                    continue
                values = self.metrics[name, replica] = deque(maxlen=_MAX_VALUES)
            values.append(float(value))


def _comparable(second: str, fraction: str, zone: str) -> str:
    """A time in UTC with nine digits: containerd writes the zone of its node."""
    if zone != "Z":
        with suppress(TimeError):  # such as hour 25: of a program, not of a runtime
            second = to_rfc3339(parse_rfc3339(second + zone))[:19]
    return f"{second}.{fraction:0<9}"


def is_error(text: str) -> bool:
    return _ERROR.search(text[:1024]) is not None
