"""What a training reads: a dataset, or a `DataLoader` whose dataset, batch size, sampler, collate function and workers
are taken over.

The order of an epoch must be a function of the seed and the epoch. A sampler of the program is therefore iterated with
seeded generators, twice at the start: if it gives two orders, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import Permutation, mix64
from torchyard.elastic.worker.seeding import generators_restored, seed_generators
from torchyard.elastic.worker.shards import ShardedDataset, fingerprint
from torchyard.elastic.worker.streaming import as_sharded

Order = Callable[[int], torch.Tensor]
"""Returns the records of an epoch in the order in which they are read."""
_ORDER_SEED = 0x6F72646572
MOST_PASSES = 10
"""A sampler that gives more than so many times the records of the dataset, and more than its length, has no end."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """What a training reads.

    Attributes:
        dataset: a map-style dataset.
        records: how many records an epoch reads.
        batch: the number of records in a step.
        shuffle: whether each epoch reads the records in a new random order.
        order: the order of an epoch if the program has a sampler of its own; None otherwise.
        collate: turns a list of records into a batch; torch's default if None.
        loaders: how many processes load.
        on_start: called in every loading process before it loads, with its number.
        shards: the dataset if it is a stream of shards, whose order `shuffle_shards` decides; None otherwise.
        shuffle_shards: whether each epoch reads the shards in a new random order.
    """

    dataset: Any
    records: int
    batch: int
    shuffle: bool
    order: Order | None = None
    collate: Callable[[list[Any]], Any] | None = None
    loaders: int = 0
    on_start: Callable[[int], None] | None = None
    shards: ShardedDataset | None = None
    shuffle_shards: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What decides the order of the records beside the sampler."""
        if self.shards is None:
            return {}
        return {"shards": fingerprint(self.shards.shard_lengths()), "shuffle_shards": self.shuffle_shards}


def read_data(
    data: Any,
    *,
    batch: int | None,
    shuffle: bool,
    sampler: Any,
    collate: Callable[[list[Any]], Any] | None,
    loaders: int | None,
    seed: int,
) -> DataSource:
    """Return the source that the arguments of `train` describe."""
    if isinstance(data, DataLoader):
        if sampler is not None:
            raise ElasticError(
                "TwoSamplers", "both the DataLoader and train have a sampler", hint="pass the sampler to one of them"
            )
        return _from_loader(data, batch=batch, collate=collate, loaders=loaders, seed=seed)
    if batch is None:
        _check_dataset(data)
        raise ElasticError("NoBatch", "batch is missing", hint="pass batch, the number of records in a step")
    if (stream := as_sharded(data)) is not None:
        if sampler is not None:
            raise ElasticError(
                "StreamSampler",
                "a sampler cannot order the records of a streaming dataset",
                hint="remove the sampler; shuffle=True reads the shards in a random order",
            )
        source = DataSource(stream, 0, batch, shuffle=False, collate=collate, loaders=loaders or 0)
        return _of_shards(source, stream, shuffle=shuffle)
    _check_dataset(data)
    source = DataSource(data, len(data), batch, shuffle, None, collate, loaders or 0)
    return source if sampler is None else _with_sampler(source, sampler, seed=seed)


def _of_shards(source: DataSource, stream: ShardedDataset, *, shuffle: bool) -> DataSource:
    lengths = stream.shard_lengths()
    bad = next((length for length in lengths if int(length) < 0), None)
    if bad is not None:
        raise ElasticError(
            "BadLengths", f"a shard has {bad} records", hint="return the number of records of each shard"
        )
    return replace(source, records=sum(map(int, lengths)), shards=stream, shuffle_shards=shuffle)


def _check_dataset(data: Any) -> None:
    if as_sharded(data) is not None:
        return
    if isinstance(data, IterableDataset):
        raise ElasticError(
            "NotReadable",
            "an IterableDataset cannot be read again from the position of a worker that died",
            hint="give it shard_lengths() and read_shard(shard, offset), see elastic.ShardedDataset; or describe the "
            "data as elastic.Streams(sources, open_at)",
        )
    if not hasattr(data, "__len__") or not (hasattr(data, "__getitem__") or hasattr(data, "__getitems__")):
        raise ElasticError(
            "NotReadable",
            f"data is a {type(data).__name__}, which does not have both __len__ and __getitem__",
            hint="pass a map-style dataset, a DataLoader over one, or elastic.Streams(sources, open_at)",
        )


def _from_loader(
    loader: DataLoader[Any],
    *,
    batch: int | None,
    collate: Callable[[list[Any]], Any] | None,
    loaders: int | None,
    seed: int,
) -> DataSource:
    _check_dataset(loader.dataset)
    batches = _batches_of(loader)
    if batch is not None and batch != batches.batch_size:
        raise ElasticError(
            "TwoBatches",
            f"batch is {batch}, but the DataLoader has batch_size={batches.batch_size}",
            hint="pass the number of records in a step once; with DistributedDataParallel it was batch_size x ranks",
        )
    default = torch.utils.data.default_collate
    stream = as_sharded(loader.dataset)
    source = DataSource(
        stream or loader.dataset,
        0 if stream is not None else len(loader.dataset),  # type: ignore[arg-type]  # checked above
        batches.batch_size,
        shuffle=False,
        collate=collate or (None if loader.collate_fn is default else loader.collate_fn),
        loaders=loader.num_workers if loaders is None else loaders,
        on_start=loader.worker_init_fn,
    )
    if stream is not None:
        if batches.drop_last:
            raise ElasticError(
                "StreamDropLast",
                "drop_last cannot be used with a streaming dataset",
                hint="remove drop_last: the last step of an epoch has the remaining records",
            )
        return _of_shards(source, stream, shuffle=False)
    source = _with_sampler(source, batches.sampler, seed=seed)
    if batches.drop_last:
        source = _without_rest(source, seed=seed)
    return source


def _batches_of(loader: DataLoader[Any]) -> Any:
    """Return what has the batch size, the sampler and `drop_last` of a loader.

    Torch's own BatchSampler says the same as these arguments of a loader; Accelerate passes it.
    """
    if loader.batch_size is not None:
        return loader
    if type(loader.batch_sampler) is BatchSampler:
        return loader.batch_sampler
    raise ElasticError(
        "BatchSampler",
        "the DataLoader has a batch_sampler of its own or batch_size=None: its batches have no fixed number of records",
        hint="give the DataLoader a batch_size, and a sampler instead of the batch_sampler",
    )


def _with_sampler(source: DataSource, sampler: Any, *, seed: int) -> DataSource:
    """Take over a sampler. Torch's own for the whole dataset need no list of all records."""
    whole = len(source.dataset)
    if isinstance(sampler, DistributedSampler):
        return replace(source, shuffle=bool(sampler.shuffle))
    if type(sampler) is SequentialSampler and len(sampler) == whole:
        return replace(source, shuffle=False)
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == whole:
        return replace(source, shuffle=True)
    order = partial(_sampler_order, sampler, seed, whole)
    first, again = order(0), order(0)
    if not torch.equal(first, again):
        raise ElasticError(
            "SamplerNotSeeded",
            f"the sampler {type(sampler).__name__} gave two orders for the same seeds",
            hint="use torch's, NumPy's or Python's global generators in it, or a generator attribute, or set_epoch",
        )
    if not len(first) or int(first.min()) < 0 or int(first.max()) >= whole:
        raise ElasticError(
            "SamplerOutOfRange",
            f"the sampler {type(sampler).__name__} gives no records or records outside the {whole} of the dataset",
            hint="create the sampler for this dataset",
        )
    return replace(source, records=len(first), shuffle=False, order=order)


def _sampler_order(sampler: Any, seed: int, whole: int, epoch: int) -> torch.Tensor:
    """Return the order that a sampler gives an epoch."""
    epoch_seed = mix64(seed, epoch, _ORDER_SEED) >> 1
    most = max(MOST_PASSES * whole, len(sampler) if hasattr(sampler, "__len__") else 0)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    generator = getattr(sampler, "generator", None)
    if isinstance(generator, torch.Generator):
        generator.manual_seed(epoch_seed)
    with generators_restored():
        seed_generators(epoch_seed, torch.device("cpu"))
        records = [int(record) for record in islice(sampler, most + 1)]
    if len(records) > most:
        raise ElasticError(
            "EndlessSampler",
            f"the sampler {type(sampler).__name__} gives more than {most} records in an epoch",
            hint="give it an end, for example one pass over the dataset, and a __len__; the epochs of train repeat it",
        )
    return torch.tensor(records, dtype=torch.int64)


def _without_rest(source: DataSource, *, seed: int) -> DataSource:
    """Drop the records of an epoch that do not fill a batch, as `drop_last` does."""
    records = source.records // source.batch * source.batch
    if not records:
        raise ElasticError(
            "BadOrder",
            f"drop_last leaves no record: the dataset has {source.records} and a batch {source.batch}",
            hint="use a smaller batch",
        )
    if not source.shuffle or records == source.records:
        return replace(source, records=records)
    whole = source.records

    def order(epoch: int) -> torch.Tensor:
        positions: torch.Tensor = Permutation.from_key(whole, seed, epoch).map_tensor(torch.arange(whole))
        return positions[:records]

    return replace(source, records=records, shuffle=False, order=order)
