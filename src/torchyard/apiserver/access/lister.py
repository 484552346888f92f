"""Read-only access to stored objects for authorization and admission."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from torchyard.api.objects import Object

P = ParamSpec("P")
T = TypeVar("T")


class StoredRecord(Protocol):
    """One object at one revision, not decoded yet."""

    @property
    def key(self) -> str: ...

    @property
    def rev(self) -> int: ...

    def object(self) -> Object: ...


class Lister(Protocol):
    """A read-only view of the store, like client-go's listers. The objects are shared and must not be changed."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        """One object; `namespace` is empty for cluster-scoped resources."""
        ...

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        """All objects of a resource, in one namespace or (empty) in all."""
        ...

    def records(self, group: str, resource: str) -> Iterable[StoredRecord]:
        """All objects of a resource, for callers that decode only those that changed."""
        ...

    def revisions(self, group: str, resource: str, namespace: str) -> Mapping[str, int]:
        """The revision of each object in a namespace, by name."""
        ...

    def revision(self, group: str, resource: str) -> int:
        """The revision of the last write to any object of the resource; an equal revision means no change."""
        ...


class CachingLister:
    """Caches parsed objects of the few resources that every write reads, until one of them changes.

    The store keeps bytes; without this cache every pod create would parse its namespace and service account again.
    """

    KINDS = frozenset(
        (
            "namespaces",
            "serviceaccounts",
            "limitranges",
            "resourcequotas",
            "priorityclasses",
            "runtimeclasses",
            "storageclasses",
            "ingressclasses",
            "nodes",
        )
    )

    def __init__(self, lister: Lister) -> None:
        self._lister = lister
        # resource -> (revision, arguments of get or list -> result)
        self._cache: dict[str, tuple[int, dict[tuple[str, ...], Any]]] = {}

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        if resource not in self.KINDS:
            return self._lister.get(group, resource, namespace, name)
        cached = self._cache_of(group, resource)
        key = (namespace, name)
        if key not in cached:
            cached[key] = self._lister.get(group, resource, namespace, name)
        obj: Object | None = cached[key]
        return obj

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        if resource not in self.KINDS:
            return self._lister.list(group, resource, namespace)
        cached = self._cache_of(group, resource)
        key = (namespace,)
        if key not in cached:
            cached[key] = tuple(self._lister.list(group, resource, namespace))
        objects: tuple[Object, ...] = cached[key]
        return objects

    def records(self, group: str, resource: str) -> Iterable[StoredRecord]:
        return self._lister.records(group, resource)

    def revisions(self, group: str, resource: str, namespace: str) -> Mapping[str, int]:
        return self._lister.revisions(group, resource, namespace)

    def revision(self, group: str, resource: str) -> int:
        return self._lister.revision(group, resource)

    def _cache_of(self, group: str, resource: str) -> dict[tuple[str, ...], Any]:
        revision = self._lister.revision(group, resource)
        entry = self._cache.get(resource)
        if entry is None or entry[0] != revision:
            entry = self._cache[resource] = (revision, {})
        return entry[1]


class LoopLister:
    """A lister for a worker thread: it reads the store in the event loop, to which the store belongs."""

    def __init__(self, lister: Lister) -> None:
        self.get = in_loop(lister.get)
        self.list = in_loop(lambda group, resource, namespace="": tuple(lister.list(group, resource, namespace)))
        self.records = in_loop(lambda group, resource: tuple(lister.records(group, resource)))
        self.revisions = in_loop(lister.revisions)
        self.revision = in_loop(lister.revision)


def in_loop(read: Callable[P, T]) -> Callable[P, T]:
    """The function for callers in any thread: it runs in the present event loop, and the caller waits for it."""
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.get_ident() == loop_thread:
            return read(*args, **kwargs)

        async def run() -> T:
            return read(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    return call
