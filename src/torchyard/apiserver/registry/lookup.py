"""Read-only access to the store by group and plural, for RBAC, admission and allocators."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.apiserver.registry.catalog import collection_named
from torchyard.apiserver.store.cache import Collection, Record
from torchyard.apiserver.store.store import Store


class StoreLookup:
    """A read-only view of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._collections: dict[tuple[str, str], Collection] = {}  # those whose revision was read

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        record = self._store.get(f"{collection_named(group, resource)}{namespace}/{name}")
        return record.object() if record else None

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        prefix = collection_named(group, resource)
        for record in self._store.collection(prefix).below(f"{prefix}{namespace}/" if namespace else prefix):
            yield record.object()

    def records(self, group: str, resource: str) -> Iterable[Record]:
        return self._store.collection(collection_named(group, resource)).all()

    def revisions(self, group: str, resource: str, namespace: str) -> dict[str, int]:
        prefix = f"{collection_named(group, resource)}{namespace}/"
        records = self._store.collection(collection_named(group, resource)).below(prefix)
        return {record.key[len(prefix) :]: record.rev for record in records}

    def revision(self, group: str, resource: str) -> int:
        collection = self._collections.get((group, resource))
        if collection is None:
            collection = self._collections[group, resource] = self._store.collection(collection_named(group, resource))
        return collection.rev
