"""Records that are read in a row: files, table partitions, queues with offsets. A lease is a range of one source.

Which leases a step has follows from its positions alone, so a lease that was lost with its worker is read again from
where it began, by whoever owns that micro-batch now. Read as a plain map-style dataset, but a range at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from torchyard.elastic.errors import ElasticError


class SourceRange(NamedTuple):
    """Records [start, stop) of one source."""

    source: Any
    start: int
    stop: int


class Streams:
    """`open_at(source, offset)` iterates a source's records from an offset on.

    `lengths` are counted by reading everything once, unless they are given.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        open_at: Callable[[Any, int], Iterator[Any]],
        *,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._sources = list(sources)
        self._open_at = open_at
        counted = [sum(1 for _ in open_at(source, 0)) for source in self._sources] if lengths is None else list(lengths)
        if len(counted) != len(self._sources):
            raise ElasticError(
                "BadLengths",
                f"{len(counted)} lengths are given for {len(self._sources)} sources",
                hint="give one number for each source, or none to have them counted",
            )
        self._ends = list(accumulate(counted))
        self._reading: tuple[int, int, Iterator[Any]] | None = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        return self.read(index, index + 1)[0]

    def leases(self, lo: int, hi: int) -> list[SourceRange]:
        return [SourceRange(self._sources[place], start, stop) for place, start, stop in self._pieces(lo, hi)]

    def _pieces(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        place = bisect_right(self._ends, lo)
        while lo < hi:
            begin = self._ends[place - 1] if place else 0
            stop = min(hi, self._ends[place])
            if stop > lo:
                yield place, lo - begin, stop - begin
            lo, place = stop, place + 1

    def read(self, lo: int, hi: int) -> list[Any]:
        """The records at positions [lo, hi), going on where the last range ended if this one follows it."""
        found: list[Any] = []
        for place, start, stop in self._pieces(lo, hi):
            records = self._from(place, start)
            got = list(islice(records, stop - start))
            if len(got) < stop - start:
                raise ElasticError(
                    "SourceChanged",
                    f"{self._sources[place]} ended after {start + len(got)} records, but had {self._length(place)}",
                    hint="bring back the source this job began with, or start a new job directory",
                )
            self._reading = place, stop, records
            found += got
        return found

    def _from(self, place: int, start: int) -> Iterator[Any]:
        if self._reading is not None and self._reading[:2] == (place, start):
            return self._reading[2]
        return iter(self._open_at(self._sources[place], start))

    def _length(self, place: int) -> int:
        return self._ends[place] - (self._ends[place - 1] if place else 0)
