"""The bytes in memory: the current state of every object, serialized, in key order.

A record keeps the bytes that clients are sent. An object is decoded when one is needed and is not kept, so that five
thousand pods cost little more than their bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from torchyard.api.objects import Object
from torchyard.apiserver.store.draft import Draft


class Record:
    """One object at one revision. Immutable; shared by the cache, the watchers and the responses."""

    __slots__ = ("_draft", "_labels", "_selectable", "data", "key", "rev")

    def __init__(
        self,
        key: str,
        rev: int,
        data: bytes,
        labels: dict[str, str] | None = None,
        draft: Draft | None = None,
    ) -> None:
        """`draft`: the object that `data` was encoded from, while its change is published."""
        self.key = key
        self.rev = rev
        self.data = data
        self._labels = labels
        self._draft = draft
        self._selectable: tuple[Any, dict[str, str]] | None = None

    def object(self) -> Object:
        """A new copy of the object, which the caller owns."""
        obj: Object = orjson.loads(self.data)
        return obj

    def take(self) -> Object:
        """The written object itself if this caller may own it, else a copy: see `store.draft`."""
        obj = self._draft.give_away() if self._draft is not None else None
        return obj if obj is not None else self.object()

    def end_publication(self) -> None:
        """Every watcher has its event: from now on there are only copies."""
        self._draft = None

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = self.object().get("metadata", {}).get("labels") or {}
        return self._labels

    def selectable(self, strategy: Any, fields: Callable[[Any, Object], dict[str, str]]) -> dict[str, str]:
        """The values of field selectors, as `fields(strategy, object)` returns them; computed once for a strategy.

        The versions of a custom resource, and one version before and after its definition changed, differ in them.
        """
        if self._selectable is None or self._selectable[0] is not strategy:
            self._selectable = (strategy, fields(strategy, self.object()))
        return self._selectable[1]


class Collection:
    """The objects of one resource, by key."""

    __slots__ = ("_keys", "_records", "prefix", "rev")

    def __init__(self, prefix: str, rev: int = 0) -> None:
        self.prefix = prefix
        self.rev = rev  # of the last change in this collection
        self._records: dict[str, Record] = {}
        self._keys: list[str] = []

    def get(self, key: str) -> Record | None:
        return self._records.get(key)

    def put(self, record: Record) -> None:
        if record.key not in self._records:
            insort(self._keys, record.key)
        self._records[record.key] = record
        self.rev = max(self.rev, record.rev)

    def remove(self, key: str, rev: int) -> None:
        if self._records.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
        self.rev = max(self.rev, rev)

    def load(self, records: list[Record]) -> None:
        """Fill an empty collection at start."""
        self._records = {record.key: record for record in records}
        self._keys = sorted(self._records)

    def below(self, prefix: str, *, after: str = "") -> Iterator[Record]:
        """The records whose key starts with `prefix` and follows `after`, in key order."""
        keys, records = self._keys, self._records
        start = bisect_left(keys, after + "\0" if after > prefix else prefix)
        for index in range(start, len(keys)):
            key = keys[index]
            if not key.startswith(prefix):
                return
            yield records[key]

    def all(self) -> list[Record]:
        records = self._records
        return [records[key] for key in self._keys]

    def __len__(self) -> int:
        return len(self._records)


def collection_of(key: str) -> str:
    """`/pods/default/a` belongs to the collection `/pods/`."""
    return key[: key.index("/", 1) + 1]
