"""The bytes in memory: the current state of every object, serialised, in key order.

A record keeps the bytes a client is sent; the parsed object is made when somebody asks for it, and not kept, so that
five thousand pods cost their bytes and little more. Only while a change is told may it still be there, for whoever in
this process wants to keep it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

import orjson


class Record:
    """One object at one revision. Immutable; shared by the cache, the watchers and the responses."""

    __slots__ = ("_labels", "_selectable", "_spare", "data", "key", "rev")

    def __init__(
        self,
        key: str,
        rev: int,
        data: bytes,
        labels: dict[str, str] | None = None,
        spare: dict[str, Any] | None = None,
    ) -> None:
        """`spare`: the object that `data` was made of, if nobody else has a part in it."""
        self.key = key
        self.rev = rev
        self.data = data
        self._labels = labels
        self._spare = spare
        self._selectable: dict[str, str] | None = None

    def object(self) -> dict[str, Any]:
        """A fresh copy of the object, the caller's to change."""
        parsed: dict[str, Any] = orjson.loads(self.data)
        return parsed

    def handed_over(self) -> dict[str, Any]:
        """Like `object`, but for the first who asks while the change is told without the work of a copy."""
        spare, self._spare = self._spare, None
        return spare if spare is not None else self.object()

    def drop_spare(self) -> None:
        """The change is told."""
        self._spare = None

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = self.object().get("metadata", {}).get("labels") or {}
        return self._labels

    def selectable(self, fields: Any) -> dict[str, str]:
        """What field selectors see, as `fields(object)` gives it; computed once."""
        if self._selectable is None:
            self._selectable = fields(self.object())
        return self._selectable


class Collection:
    """The objects of one resource, by key."""

    __slots__ = ("_keys", "_records", "prefix", "rev")

    def __init__(self, prefix: str, rev: int = 0) -> None:
        self.prefix = prefix
        self.rev = rev  # nothing in this collection has changed since
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
        """The records whose key starts with `prefix`, in key order; those after the key `after` only."""
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
