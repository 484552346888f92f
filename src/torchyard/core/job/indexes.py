"""Completion indexes: parsed from the text in a status, and formatted again.

A status is written by users too and may name two billion indexes, so no function here lists them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

from torchyard.api.job.indexes import IndexesError, parse_interval

_ANY = 2**31


class IndexSet:
    """An immutable set of indexes, kept as disjoint intervals."""

    __slots__ = ("_below", "_starts", "intervals")

    def __init__(self, intervals: Iterable[range] = ()) -> None:
        merged: list[range] = []
        for interval in sorted((each for each in intervals if each), key=lambda each: each.start):
            if merged and interval.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, interval.stop))
            else:
                merged.append(interval)
        self.intervals = tuple(merged)  # ascending, not empty, with a gap between two of them
        self._starts = [interval.start for interval in merged]
        self._below = [0, *accumulate(len(interval) for interval in merged)]

    @classmethod
    def of(cls, indexes: Iterable[int]) -> IndexSet:
        return cls(range(index, index + 1) for index in indexes)

    def __len__(self) -> int:
        return self._below[-1]

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._starts, index)
        return place > 0 and index < self.intervals[place - 1].stop

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.intervals)

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet((*self.intervals, *other.intervals))

    def __sub__(self, other: IndexSet) -> IndexSet:
        left: list[range] = []
        for interval in self.intervals:
            start = interval.start
            first = max(bisect_right(other._starts, start) - 1, 0)
            for removed in other.intervals[first:]:
                if removed.start >= interval.stop:
                    break
                left.append(range(start, min(removed.start, interval.stop)))
                start = max(start, removed.stop)
            left.append(range(start, interval.stop))
        return IndexSet(left)

    def below(self, index: int) -> int:
        """How many of the indexes are below this one."""
        place = bisect_right(self._starts, index)
        return self._below[place] - (max(0, self.intervals[place - 1].stop - index) if place else 0)


def parse(text: str | None, completions: int) -> IndexSet:
    """The indexes below `completions` in a text such as `1,3-5,7`. Invalid intervals are ignored."""
    return IndexSet(_intervals(text, completions))


def count(text: str, completions: int, members: IndexSet) -> tuple[int, int]:
    """How many indexes below `completions` are in a text, and how many of these are in `members`.

    The text is in ascending order.
    """
    named = matched = 0
    for interval in _intervals(text, completions):
        named += len(interval)
        matched += members.below(interval.stop) - members.below(interval.start)
    return named, matched


def _intervals(text: str | None, completions: int) -> Iterator[range]:
    for part in (text or "").split(",") if text else ():
        try:
            first, last = parse_interval(part, _ANY)
        except IndexesError:
            continue
        yield range(first, max(first, min(last + 1, completions)))


def format_indexes(indexes: IndexSet) -> str:
    """Ascending; three or more consecutive indexes become an interval: `1,3-5,7,8`."""
    return ",".join(_format_interval(interval.start, interval.stop - 1) for interval in indexes.intervals)


def _format_interval(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def first_free(taken: IndexSet, count: int, completions: int) -> list[int]:
    """The lowest unused indexes."""
    free: list[int] = []
    start = 0
    if count <= 0:
        return free
    for interval in (*taken.intervals, range(completions, completions + 1)):
        gap = range(start, min(interval.start, completions))
        free += gap[: count - len(free)]
        if len(free) >= count:
            break
        start = interval.stop
    return free
