"""Loads the micro-batches of the next steps ahead of time.

A step and a number identify a micro-batch, not its position in a queue. After a change of the world, batches that still
belong to this worker are used, and the others are dropped. So none is delivered twice, and none is lost.

Random numbers of the dataset (augmentation) depend on the micro-batch alone: all generators are seeded before it is
loaded. The generators belong to the whole process, and a thread would share them with the training. So a dataset with
code of its own is loaded in the training thread, or in processes (`loaders`); a thread loads only plain tensors.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import Permutation, StepSampler
from torchyard.elastic.worker.data_source import DataSource, Order
from torchyard.elastic.worker.loader_process import LoaderProcess
from torchyard.elastic.worker.seeding import seed_generators
from torchyard.elastic.worker.shards import ShardReader
from torchyard.elastic.worker.streams import Streams

PERMUTED_AHEAD = 4096
"""How many positions are mapped to records in one tensor operation."""
_CPU = torch.device("cpu")


class MapDataset(Protocol):
    """A map-style dataset, as in torch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class RecordIds:
    """Computes the record ids of any micro-batch, a block of positions at a time, for one thread after the other.

    Args:
        sampler: the positions of every micro-batch.
        order: the records of an epoch by position, if the program has a sampler of its own.
    """

    def __init__(self, sampler: StepSampler, order: Order | None = None) -> None:
        self._sampler = sampler
        self._order = order
        self._lock = threading.Lock()
        self._epoch = -1
        self._block: range = range(0)
        self._ids: torch.Tensor = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int, micro: int) -> torch.Tensor:
        span = self._sampler.micro_span(step, micro)
        if not self._sampler.shuffle and self._order is None:
            return torch.arange(span.lo, span.hi)
        with self._lock:
            if span.epoch != self._epoch or span.lo not in self._block or span.hi > self._block.stop:
                self._read_block(span.epoch, span.lo, span.hi)
            return self._ids[span.lo - self._block.start : span.hi - self._block.start]

    def _read_block(self, epoch: int, lo: int, hi: int) -> None:
        records = self._sampler.records
        self._epoch = epoch
        if self._order is not None:
            self._block, self._ids = range(records), self._order(epoch)
            if len(self._ids) != records:
                raise ElasticError(
                    "SamplerChanged",
                    f"the sampler gives {len(self._ids)} records in epoch {epoch}, but gave {records} in the first",
                    hint="use a sampler with the same number of records in every epoch",
                )
            return
        self._block = range(lo, min(max(lo + PERMUTED_AHEAD, hi), records))
        permute: Permutation = self._sampler.permutation(epoch)
        self._ids = permute.map_tensor(torch.arange(self._block.start, self._block.stop))


def is_plain(source: DataSource) -> bool:
    """Return whether no code of the program runs while a batch is loaded."""
    return source.collate is None and type(source.dataset) is torch.utils.data.TensorDataset


def fetcher(dataset: MapDataset, collate: Callable[[list[Any]], Any] | None) -> Callable[[torch.Tensor], Any]:
    """Return the fastest way to read several records of a dataset as one batch."""
    if collate is None and type(dataset) is torch.utils.data.TensorDataset:
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
        sampler: which positions a micro-batch has.
        source: the records.
        ahead: how many steps to load ahead, if the source can be loaded beside the training.
    """

    def __init__(self, sampler: StepSampler, source: DataSource, *, ahead: int) -> None:
        self._sampler = sampler
        self._record_ids = RecordIds(sampler, source.order)
        self._has_order = source.order is not None
        self._shards = (
            ShardReader(source.shards, sampler, shuffle=source.shuffle_shards) if source.shards is not None else None
        )
        self._collate = source.collate or torch.utils.data.default_collate
        self._fetch = fetcher(source.dataset, source.collate)
        self._seeded = not is_plain(source)
        self._loading: dict[tuple[int, int], Future[Any]] = {}
        self._processes = _start_processes(source, self._load)
        self._free: queue.SimpleQueue[LoaderProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._free.put(process)
        threads = len(self._processes) or (0 if self._seeded or not ahead else 1)
        self._ahead = max(ahead, 1) if self._processes else ahead
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="elastic-loader") if threads else None

    def get(self, step: int, micro: int) -> Any:
        if self._threads is None:
            return self._load(step, micro)
        future = self._loading.pop((step, micro), None) or self._submit(step, micro)
        return future.result()

    def load_here(self, step: int, micro: int) -> Any:
        """Load a micro-batch in the calling thread."""
        return self._load(step, micro)

    def prepare(self, step: int, block: range) -> None:
        """Drop batches that this worker no longer needs, and start to load those of this step."""
        self._load_missing([(step, micro) for micro in block], keep=range(step, step + self._ahead + 1), block=block)

    def look_ahead(self, step: int, block: range) -> None:
        """Start to load the steps after this one. Best called while the device computes and this process is idle."""
        coming = range(step + 1, min(step + self._ahead, self._sampler.steps) + 1)
        self._load_missing([(s, micro) for s in coming for micro in block], keep=coming, block=block)

    def _load_missing(self, keys: list[tuple[int, int]], *, keep: range, block: range) -> None:
        if self._threads is None:
            return
        for key in [key for key in self._loading if key[0] not in keep or key[1] not in block]:
            self._loading.pop(key).cancel()
        for key in keys:
            if key not in self._loading and self._sampler.micro_span(*key).records:
                self._loading[key] = self._submit(*key)

    def _submit(self, step: int, micro: int) -> Future[Any]:
        assert self._threads is not None
        if self._processes:
            return self._threads.submit(self._load_in_process, step, micro)
        if self._has_order:
            # A sampler of the program draws from the global generators, which the training thread uses and seeds: in
            # another thread it would give another order now and then, and disturb what the training draws.
            try:
                return self._threads.submit(self._fetch, self._record_ids(step, micro))
            except Exception as error:  # `get` raises it: it belongs to this micro-batch
                failed: Future[Any] = Future()
                failed.set_exception(error)
                return failed
        return self._threads.submit(self._load, step, micro)

    def _load_in_process(self, step: int, micro: int) -> Any:
        process = self._free.get()
        try:
            return process.load(step, micro)
        finally:
            self._free.put(process)

    def record_ids(self, step: int, micro: int) -> list[int]:
        """Return the records of a micro-batch."""
        if self._shards is not None:
            return self._shards.record_ids(step, micro)
        return [int(record) for record in self._record_ids(step, micro)]

    def _load(self, step: int, micro: int) -> Any:
        ids = self._record_ids(step, micro)  # before the generators are seeded: a sampler may draw from them
        if self._seeded:
            seed_generators(self._sampler.load_seed(step, micro), _CPU)
        if self._shards is not None:
            return self._collate(self._shards.read(step, micro))
        return self._fetch(ids)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            with suppress(ChildProcessError, ProcessLookupError):
                process.close()
        self._processes = []


def _start_processes(source: DataSource, load: Callable[[int, int], Any]) -> list[LoaderProcess]:
    if source.loaders < 0:
        raise ElasticError("BadLoaders", f"loaders is {source.loaders}", hint="use loaders=0 or more")
    if source.loaders > 1 and (source.shards is not None or isinstance(source.dataset, Streams)):
        raise ElasticError(
            "BadLoaders",
            f"loaders is {source.loaders}, but streams are read in sequence",
            hint="use loaders=1, which reads ahead in one process",
        )
    starts = [partial(source.on_start, number) if source.on_start else None for number in range(source.loaders)]
    return [LoaderProcess(load, on_start) for on_start in starts]
