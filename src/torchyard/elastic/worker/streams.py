"""Records that can only be read in sequence: files, table partitions, queues with offsets.

The positions of a step determine which ranges of the sources it reads. The range of a worker that died is read again
from its start, by the worker that owns the micro-batch now. It acts as a map-style dataset that is read a range at a
time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from torchyard.elastic.errors import ElasticError


class SourceRange(NamedTuple):
    """The records [start, stop) of one source."""

    source: Any
    start: int
    stop: int


class Streams:
    """A dataset of several sources that are read in sequence.

    Args:
        sources: what `open_at` opens, for example paths.
        open_at: `open_at(source, offset)` returns an iterator over the records of a source from an offset on.
        lengths: the number of records of each source; if None, every source is read once to count them.
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
        counts = [sum(1 for _ in open_at(source, 0)) for source in self._sources] if lengths is None else list(lengths)
        if len(counts) != len(self._sources):
            raise ElasticError(
                "BadLengths",
                f"there are {len(counts)} lengths for {len(self._sources)} sources",
                hint="pass one length for each source, or no lengths to count the records",
            )
        self._ends = list(accumulate(counts))
        self._reading: tuple[int, int, Iterator[Any]] | None = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        return self.read(index, index + 1)[0]

    def ranges(self, lo: int, hi: int) -> list[SourceRange]:
        return [SourceRange(self._sources[index], start, stop) for index, start, stop in self._source_ranges(lo, hi)]

    def _source_ranges(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        index = bisect_right(self._ends, lo)
        while lo < hi:
            first = self._ends[index - 1] if index else 0
            stop = min(hi, self._ends[index])
            if stop > lo:
                yield index, lo - first, stop - first
            lo, index = stop, index + 1

    def read(self, lo: int, hi: int) -> list[Any]:
        """Return the records at positions [lo, hi). A range that follows the last one continues its iterator."""
        records: list[Any] = []
        for index, start, stop in self._source_ranges(lo, hi):
            iterator = self._iterate(index, start)
            part = list(islice(iterator, stop - start))
            if len(part) < stop - start:
                raise ElasticError(
                    "SourceChanged",
                    f"{self._sources[index]} has only {start + len(part)} records, but had {self._length(index)}",
                    hint="restore the source that this job began with, or use a new job directory",
                )
            self._reading = index, stop, iterator
            records += part
        return records

    def _iterate(self, index: int, start: int) -> Iterator[Any]:
        if self._reading is not None and self._reading[:2] == (index, start):
            return self._reading[2]
        return iter(self._open_at(self._sources[index], start))

    def _length(self, index: int) -> int:
        return self._ends[index] - (self._ends[index - 1] if index else 0)
