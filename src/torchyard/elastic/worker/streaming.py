"""Streaming datasets of other libraries as sharded datasets, and tar files in the manner of WebDataset.

Nothing here imports those libraries: their datasets are recognized by what they can do.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.shards import ShardedDataset

BLOCK = 256
"""How many consecutive records of an indexed stream form a shard: its own shards are larger."""
STATE_EVERY = 500
"""After how many records of a Hugging Face stream its state is kept, so that a later read may begin there."""


def as_sharded(data: Any) -> ShardedDataset | None:
    """Return a streaming dataset in a form that can be read from any position; None if it is not one."""
    if isinstance(data, ShardedDataset):
        return data
    if all(hasattr(data, name) for name in ("state_dict", "load_state_dict", "shard")) and _shard_count(data):
        return HuggingFaceShards(data)
    if isinstance(data, IterableDataset) and hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return IndexedShards(data)
    return None


def _shard_count(data: Any) -> int:
    return int(getattr(data, "num_shards", None) or getattr(data, "n_shards", None) or 0)


class HuggingFaceShards:
    """A streaming dataset of the `datasets` library.

    Args:
        dataset: a `datasets.IterableDataset`.
        lengths: the number of records of each shard; if None, every shard is read once to count them. Smaller numbers
            read only the first records of a shard.
    """

    def __init__(self, dataset: Any, *, lengths: Sequence[int] | None = None) -> None:
        self._dataset = dataset
        self._count = _shard_count(dataset)
        self._epoch = 0
        self._states: dict[tuple[int, int], dict[int, Any]] = {}
        self._seekable = not _is_shuffled(dataset)
        if lengths is not None and len(lengths) != self._count:
            raise ElasticError(
                "BadLengths",
                f"there are {len(lengths)} lengths for {self._count} shards",
                hint="pass one length for each shard, or no lengths to count the records",
            )
        self._lengths = list(lengths) if lengths is not None else None

    def shard_lengths(self) -> Sequence[int]:
        if self._lengths is None:
            self._lengths = [sum(1 for _ in self.read_shard(shard, 0)) for shard in range(self._count)]
        return self._lengths

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._states.clear()

    def read_shard(self, shard: int, offset: int) -> Iterator[Any]:
        part = self._dataset.shard(num_shards=self._count, index=shard)
        part.set_epoch(self._epoch)
        states = self._states.setdefault((self._epoch, shard), {})
        position = max((known for known in states if known <= offset), default=0)
        if position:
            part.load_state_dict(states[position])
        for record in part:
            position += 1
            if self._seekable and position % STATE_EVERY == 0:
                states[position] = part.state_dict()
            if position > offset:
                yield record


def _is_shuffled(dataset: Any) -> bool:
    """Return whether a buffer shuffles the records: its content is not part of the dataset's state.

    A dataset whose parts cannot be seen counts as shuffled: then a shard is always read from its start.
    """
    part = getattr(dataset, "_ex_iterable", None)
    if part is None or getattr(dataset, "_shuffling", None) is not None:
        return True
    parts = [part]
    while parts:
        part = parts.pop()
        if "Shuffled" in type(part).__name__:
            return True
        inner = getattr(part, "ex_iterable", None)
        parts += [inner] if inner is not None else []
        parts += getattr(part, "ex_iterables", None) or []  # of interleaved and concatenated datasets
    return False


class IndexedShards:
    """A streaming dataset with `__len__` and `__getitem__`, such as those of litData and MosaicML Streaming.

    Consecutive records are read one after the other, so that the library loads each of its own shards once.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._length = len(dataset)

    def shard_lengths(self) -> Sequence[int]:
        return [min(BLOCK, self._length - first) for first in range(0, self._length, BLOCK)]

    def read_shard(self, shard: int, offset: int) -> Iterator[Any]:
        first = shard * BLOCK
        return (self._dataset[first + index] for index in range(offset, min(BLOCK, self._length - first)))


class TarShards:
    """Records in tar files, as WebDataset writes them: consecutive files with the same name before the first dot.

    The headers of every file are read once, which does not read the content of the records.

    Args:
        paths: the tar files.
        decode: turns the files of a record, as {"__key__": name, suffix: content}, into what the program trains with.
    """

    def __init__(self, paths: Sequence[str | Path], decode: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self._paths = [Path(path) for path in paths]
        self._decode = decode
        self._records = [_index_tar(path) for path in self._paths]

    def shard_lengths(self) -> Sequence[int]:
        return [len(records) for records in self._records]

    def read_shard(self, shard: int, offset: int) -> Iterator[Any]:
        with self._paths[shard].open("rb") as file:
            for key, members in self._records[shard][offset:]:
                record: dict[str, Any] = {"__key__": key}
                for suffix, start, size in members:
                    file.seek(start)
                    record[suffix] = file.read(size)
                yield self._decode(record) if self._decode is not None else record


def _index_tar(path: Path) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Return the name of every record of a tar file, and the suffix, the position and the size of its files."""
    records: list[tuple[str, list[tuple[str, int, int]]]] = []
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                folder, _, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                if not records or records[-1][0] != key:
                    records.append((key, []))
                records[-1][1].append((suffix, member.offset_data, member.size))
    except (tarfile.TarError, OSError) as error:
        raise ElasticError(
            "NotReadable",
            f"{path} is not a readable tar file without compression: {error}",
            hint="check the path; compress the records inside of the tar file, not the tar file",
        ) from error
    return records
