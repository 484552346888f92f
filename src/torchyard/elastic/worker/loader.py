"""Loads the micro-batches of the next steps ahead of time, in a thread.

A step and a number identify a micro-batch, not its position in a queue. After a change of the world, batches that still
belong to this worker are used, and the others are dropped. So none is delivered twice, and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch

from torchyard.elastic.sampler import Permutation, StepSampler
from torchyard.elastic.worker.streams import Streams

PERMUTED_AHEAD = 4096
"""How many positions are mapped to records in one tensor operation."""


class MapDataset(Protocol):
    """A map-style dataset, as in torch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class RecordIds:
    """Computes the record ids of any micro-batch, a block of positions at a time."""

    def __init__(self, sampler: StepSampler) -> None:
        self._sampler = sampler
        self._epoch = -1
        self._block: range = range(0)
        self._ids: torch.Tensor = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int, micro: int) -> torch.Tensor:
        span = self._sampler.micro_span(step, micro)
        if not self._sampler.shuffle:
            return torch.arange(span.lo, span.hi)
        if span.epoch != self._epoch or span.lo not in self._block or span.hi > self._block.stop:
            self._epoch = span.epoch
            self._block = range(span.lo, min(max(span.lo + PERMUTED_AHEAD, span.hi), self._sampler.records))
            permute: Permutation = self._sampler.permutation(span.epoch)
            self._ids = permute.map_tensor(torch.arange(self._block.start, self._block.stop))
        return self._ids[span.lo - self._block.start : span.hi - self._block.start]


def fetcher(dataset: MapDataset, collate: Callable[[list[Any]], Any] | None) -> Callable[[torch.Tensor], Any]:
    """Return the fastest way to read several records of a dataset as one batch."""
    if collate is None and isinstance(dataset, torch.utils.data.TensorDataset):
        tensors = dataset.tensors
        return lambda ids: tuple(tensor[ids] for tensor in tensors)
    merge = collate or torch.utils.data.default_collate
    if isinstance(dataset, Streams):
        return lambda ids: merge(dataset.read(int(ids[0]), int(ids[-1]) + 1))
    get_items: Callable[[Sequence[int]], list[Any]] | None = getattr(dataset, "__getitems__", None)
    if get_items is not None:
        return lambda ids: merge(get_items(ids.tolist()))
    return lambda ids: merge([dataset[index] for index in ids.tolist()])


class MicroBatchLoader:
    """Loads the micro-batches of one worker.

    Args:
        sampler: which records a micro-batch has.
        dataset: the records.
        collate: turns a list of records into a batch; torch's default if None.
        ahead: how many steps to load ahead; 0 loads in the calling thread.
    """

    def __init__(
        self, sampler: StepSampler, dataset: MapDataset, *, collate: Callable[[list[Any]], Any] | None, ahead: int
    ) -> None:
        self._sampler = sampler
        self._records = RecordIds(sampler)
        self._fetch = fetcher(dataset, collate)
        self._ahead = ahead
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elastic-loader") if ahead else None
        self._loading: dict[tuple[int, int], Future[Any]] = {}

    def get(self, step: int, micro: int) -> Any:
        if self._thread is None:
            return self._load(step, micro)
        future = self._loading.pop((step, micro), None) or self._thread.submit(self._load, step, micro)
        return future.result()

    def prepare(self, step: int, block: range) -> None:
        """Drop batches that this worker no longer needs, and start to load those of this step."""
        self._load_missing([(step, micro) for micro in block], keep=range(step, step + self._ahead + 1), block=block)

    def look_ahead(self, step: int, block: range) -> None:
        """Start to load the steps after this one. Best called while the device computes and this process is idle."""
        coming = range(step + 1, min(step + self._ahead, self._sampler.steps) + 1)
        self._load_missing([(s, micro) for s in coming for micro in block], keep=coming, block=block)

    def _load_missing(self, keys: list[tuple[int, int]], *, keep: range, block: range) -> None:
        if self._thread is None:
            return
        for key in [key for key in self._loading if key[0] not in keep or key[1] not in block]:
            self._loading.pop(key).cancel()
        for key in keys:
            if key not in self._loading and self._sampler.micro_span(*key).records:
                self._loading[key] = self._thread.submit(self._load, *key)

    def _load(self, step: int, micro: int) -> Any:
        return self._fetch(self._records(step, micro))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
