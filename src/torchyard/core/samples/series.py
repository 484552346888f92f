"""The points of one curve: a fixed number of them, however long the job runs.

Samples of one interval are averaged. When there are too many intervals, their length doubles and neighbours are merged:
a curve of an hour has a point every eight seconds, one of a month a point every 68 minutes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from math import isfinite

MAX_POINTS = 720
_HEAD = struct.Struct("<dI")
_POINT = struct.Struct("<qdQ")


class Series:
    __slots__ = ("_counts", "_intervals", "_values", "step")

    def __init__(self, step: float = 1.0) -> None:
        self.step = step  # seconds
        # Arrays: lists of numbers would take five times the memory.
        self._intervals = array("q")  # ascending; a point stands for [interval * step, (interval + 1) * step)
        self._values = array("d")  # the mean; the last sample, if it is not finite
        self._counts = array("Q")

    def __len__(self) -> int:
        return len(self._intervals)

    @property
    def last_time(self) -> float:
        return self._intervals[-1] * self.step if self._intervals else 0.0

    def add(self, time: float, value: float) -> None:
        """Add a sample. One that is older than the last interval is dropped: nothing reports late."""
        interval = int(time // self.step)
        if self._intervals and interval < self._intervals[-1]:
            return
        if not self._intervals or interval > self._intervals[-1]:
            self._intervals.append(interval)
            self._values.append(value)
            self._counts.append(1)
            if len(self._intervals) > MAX_POINTS:
                self._halve()
            return
        self._values[-1] = _merged(self._values[-1], self._counts[-1], value, 1)
        self._counts[-1] += 1

    def points(self, since: float = 0.0) -> list[tuple[float, float]]:
        """(start of the interval, value), from the interval of `since` on."""
        first = int(since // self.step)
        pairs = zip(self._intervals, self._values, strict=True)
        return [(interval * self.step, value) for interval, value in pairs if interval >= first]

    def _halve(self) -> None:
        points = list(zip(self._intervals, self._values, self._counts, strict=True))
        self.step *= 2
        self._intervals, self._values, self._counts = array("q"), array("d"), array("Q")
        for interval, value, count in points:
            if self._intervals and self._intervals[-1] == interval // 2:
                self._values[-1] = _merged(self._values[-1], self._counts[-1], value, count)
                self._counts[-1] += count
            else:
                self._intervals.append(interval // 2)
                self._values.append(value)
                self._counts.append(count)

    def copy(self) -> Series:
        series = Series(self.step)
        series._intervals, series._values, series._counts = self._intervals[:], self._values[:], self._counts[:]
        return series

    def to_bytes(self) -> bytes:
        """The points one after the other, put together by columns: point by point takes twenty times as long."""
        points = array("Q", bytes(_POINT.size * len(self)))
        points[0::3] = array("Q", self._intervals.tobytes())
        points[1::3] = array("Q", self._values.tobytes())
        points[2::3] = self._counts
        if sys.byteorder == "big":
            points.byteswap()
        return _HEAD.pack(self.step, len(self)) + points.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Series:
        """Raises `ValueError` if the bytes are not those of a series."""
        try:
            step, count = _HEAD.unpack_from(data)
            points = list(_POINT.iter_unpack(data[_HEAD.size :]))
        except struct.error as error:
            raise ValueError(str(error)) from error
        if len(points) != count or not isfinite(step) or step <= 0:
            raise ValueError("the number of points is wrong")
        series = cls(step)
        series._intervals = array("q", [point[0] for point in points])
        series._values = array("d", [point[1] for point in points])
        series._counts = array("Q", [point[2] for point in points])
        return series


def _merged(value: float, count: int, other: float, other_count: int) -> float:
    if not isfinite(value) or not isfinite(other):
        return other
    return value + (other - value) * (other_count / (count + other_count))
