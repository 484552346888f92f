"""Streaming datasets: shards that are read in sequence, from any offset.

Each micro-batch number reads a contiguous part of the epoch of its own. So a worker reads only the parts of its
micro-batches, in sequence and without gaps, and a worker that takes over a part opens one shard at one offset. The
lengths of the shards and the seed alone determine the records of a micro-batch.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Protocol, runtime_checkable

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import Permutation, StepSampler

_SHARD_ORDER = 0x7368617264


@runtime_checkable
class ShardedDataset(Protocol):
    """A dataset that can be read from any offset of any of its shards.

    It may also have `set_epoch(epoch)`, which is called before a shard is read for another epoch.
    """

    def shard_lengths(self) -> Sequence[int]:
        """Return the number of records of every shard."""

    def read_shard(self, shard: int, offset: int) -> Iterator[Any]:
        """Return an iterator over the records of a shard, from an offset on. The same records every time."""


def fingerprint(lengths: Sequence[int]) -> int:
    """Return a number that identifies the division of a dataset into shards."""
    return zlib.crc32(repr(list(map(int, lengths))).encode())


@dataclass(frozen=True, slots=True)
class _EpochOrder:
    """The shards of one epoch in the order in which they are read, and where each of them ends."""

    epoch: int
    shards: list[int]
    ends: list[int]

    def ranges(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts of the positions [lo, hi) as (shard, first offset, last offset + 1)."""
        index = bisect_right(self.ends, lo)
        while lo < hi:
            first = self.ends[index - 1] if index else 0
            stop = min(hi, self.ends[index])
            if stop > lo:
                yield self.shards[index], lo - first, stop - first
            lo, index = stop, index + 1


class ShardReader:
    """Reads the micro-batches of a sharded dataset.

    Args:
        dataset: the dataset.
        sampler: which positions a micro-batch has.
        shuffle: whether each epoch reads the shards in a new random order.
    """

    def __init__(self, dataset: ShardedDataset, sampler: StepSampler, *, shuffle: bool) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._shuffle = shuffle
        self._lengths = [int(length) for length in dataset.shard_lengths()]
        self._starts = list(accumulate(self._lengths, initial=0))
        self._parts = list(accumulate(map(self._part_length, range(sampler.micro_batches)), initial=0))
        self._order = self._epoch_order(0)
        self._open: dict[tuple[int, int, int], Iterator[Any]] = {}
        self._epoch: int | None = None

    def _part_length(self, micro: int) -> int:
        """Return how many records of an epoch a micro-batch number reads."""
        sampler = self._sampler
        last = sampler.micro_span(sampler.steps_per_epoch, micro).records
        return (sampler.steps_per_epoch - 1) * sampler.micro_size + last

    def _epoch_order(self, epoch: int) -> _EpochOrder:
        shards = list(range(len(self._lengths)))
        if self._shuffle and shards:
            permute = Permutation.from_key(len(shards), self._sampler.seed, epoch, _SHARD_ORDER)
            shards = [permute(position) for position in shards]
        return _EpochOrder(epoch, shards, list(accumulate(self._lengths[shard] for shard in shards)))

    def _ranges(self, step: int, micro: int) -> list[tuple[int, int, int]]:
        span = self._sampler.micro_span(step, micro)
        if span.epoch != self._order.epoch:
            self._order = self._epoch_order(span.epoch)
        within = (step - 1) % self._sampler.steps_per_epoch * self._sampler.micro_size
        lo = self._parts[micro] + within
        return list(self._order.ranges(lo, lo + span.records))

    def record_ids(self, step: int, micro: int) -> list[int]:
        """Return the records of a micro-batch, counted over all shards in the order of the dataset."""
        return [
            self._starts[shard] + offset
            for shard, start, stop in self._ranges(step, micro)
            for offset in range(start, stop)
        ]

    def read(self, step: int, micro: int) -> list[Any]:
        """Return the records of a micro-batch. A range that follows an earlier one continues its iterator."""
        ranges, epoch = self._ranges(step, micro), self._order.epoch
        if epoch != self._epoch:
            self._open.clear()
            self._epoch = epoch
            set_epoch = getattr(self._dataset, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
        records: list[Any] = []
        for shard, start, stop in ranges:
            iterator = self._open.pop((micro, shard, start), None)
            if iterator is None:
                iterator = iter(self._dataset.read_shard(shard, start))
            part = list(islice(iterator, stop - start))
            if len(part) < stop - start:
                raise ElasticError(
                    "ShardChanged",
                    f"shard {shard} has only {start + len(part)} records, but had {self._lengths[shard]}",
                    hint="restore the data that this job began with, or use a new job directory",
                )
            self._open = {key: value for key, value in self._open.items() if key[0] != micro}
            if stop < self._lengths[shard]:
                self._open[micro, shard, stop] = iterator
            records += part
        return records
