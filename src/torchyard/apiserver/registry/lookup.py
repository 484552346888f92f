"""Reading the store by group and plural: what access rules, admission and allocators look at."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.apiserver.registry.catalog import collection_named
from torchyard.apiserver.store.cache import Collection
from torchyard.apiserver.store.store import Store


class StoreLookup:
    """A read-only view of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._collections: dict[tuple[str, str], Collection] = {}  # of those whose revision was asked for

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        record = self._store.get(f"{collection_named(group, resource)}{namespace}/{name}")
        return record.object() if record else None

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        prefix = collection_named(group, resource)
        for record in self._store.collection(prefix).below(f"{prefix}{namespace}/" if namespace else prefix):
            yield record.object()

    def revision(self, group: str, resource: str) -> int:
        collection = self._collections.get((group, resource))
        if collection is None:
            collection = self._collections[group, resource] = self._store.collection(collection_named(group, resource))
        return collection.rev
