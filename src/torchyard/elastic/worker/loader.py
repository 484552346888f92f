"""Loads the micro-batches of the coming steps ahead of time, in a thread.

A batch is named by its step and number, never by its place in a queue: after a change of the world, what is still ours
is used and what is not is dropped. Nothing can be delivered twice or go missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch

from torchyard.elastic.sampler import Permutation, StepSampler
from torchyard.elastic.worker.streams import Streams

PERMUTED_AHEAD = 4096
"""Positions mapped to records in one tensor operation."""


class MapDataset(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class RecordIds:
    """Record ids of any micro-batch, permuted a block of positions at a time."""

    def __init__(self, order: StepSampler) -> None:
        self._order = order
        self._epoch = -1
        self._block: range = range(0)
        self._ids: torch.Tensor = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int, micro: int) -> torch.Tensor:
        span = self._order.micro_span(step, micro)
        if not self._order.shuffle:
            return torch.arange(span.lo, span.hi)
        if span.epoch != self._epoch or span.lo not in self._block or span.hi > self._block.stop:
            self._epoch = span.epoch
            self._block = range(span.lo, min(max(span.lo + PERMUTED_AHEAD, span.hi), self._order.records))
            permute: Permutation = self._order.permutation(span.epoch)
            self._ids = permute.many(torch.arange(self._block.start, self._block.stop))
        return self._ids[span.lo - self._block.start : span.hi - self._block.start]


def fetcher(dataset: MapDataset, collate: Callable[[list[Any]], Any] | None) -> Callable[[torch.Tensor], Any]:
    """The quickest way a dataset offers to read many records."""
    if collate is None and isinstance(dataset, torch.utils.data.TensorDataset):
        tensors = dataset.tensors
        return lambda ids: tuple(tensor[ids] for tensor in tensors)
    join = collate or torch.utils.data.default_collate
    if isinstance(dataset, Streams):
        return lambda ids: join(dataset.read(int(ids[0]), int(ids[-1]) + 1))
    many: Callable[[Sequence[int]], list[Any]] | None = getattr(dataset, "__getitems__", None)
    if many is not None:
        return lambda ids: join(many(ids.tolist()))
    return lambda ids: join([dataset[index] for index in ids.tolist()])


class MicroBatchLoader:
    def __init__(
        self, order: StepSampler, dataset: MapDataset, *, collate: Callable[[list[Any]], Any] | None, ahead: int
    ) -> None:
        self._order = order
        self._records = RecordIds(order)
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
        """Forget what this worker no longer needs; begin to load what this step needs and is not there yet."""
        self._want([(step, micro) for micro in block], keep=range(step, step + self._ahead + 1), block=block)

    def look_ahead(self, step: int, block: range) -> None:
        """Begin to load the steps after this one: best told when the device is at work and this process is idle."""
        coming = range(step + 1, min(step + self._ahead, self._order.steps) + 1)
        self._want([(s, micro) for s in coming for micro in block], keep=coming, block=block)

    def _want(self, wanted: list[tuple[int, int]], *, keep: range, block: range) -> None:
        if self._thread is None:
            return
        for key in [key for key in self._loading if key[0] not in keep or key[1] not in block]:
            self._loading.pop(key).cancel()
        for key in wanted:
            if key not in self._loading and self._order.micro_span(*key).records:
                self._loading[key] = self._thread.submit(self._load, *key)

    def _load(self, step: int, micro: int) -> Any:
        return self._fetch(self._records(step, micro))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
