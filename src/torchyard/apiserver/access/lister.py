"""What access decisions may read: the latest stored objects, and how new they are. Never writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torchyard.api.objects import Object


class Lister(Protocol):
    """A read-only view of the store. Objects are shared with it and must not be changed."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        """One object; `namespace` is empty for cluster-scoped resources."""
        ...

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        """All objects of a resource, in one namespace or (empty) in all."""
        ...

    def revision(self, group: str, resource: str) -> int:
        """The revision of the last write to any object of the resource: equal means nothing changed."""
        ...


class CachingLister:
    """A lookup that remembers what it read of the few kinds every write asks about, until they change.

    The store keeps bytes; without this each pod would have its namespace and account parsed anew.
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
        )
    )

    def __init__(self, lister: Lister) -> None:
        self._lister = lister
        # resource -> (revision, what was asked -> what was found)
        self._read: dict[str, tuple[int, dict[tuple[str, ...], Any]]] = {}

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        if resource not in self.KINDS:
            return self._lister.get(group, resource, namespace, name)
        known = self._known(group, resource)
        key = (namespace, name)
        if key not in known:
            known[key] = self._lister.get(group, resource, namespace, name)
        found: Object | None = known[key]
        return found

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        if resource not in self.KINDS:
            return self._lister.list(group, resource, namespace)
        known = self._known(group, resource)
        key = (namespace,)
        if key not in known:
            known[key] = tuple(self._lister.list(group, resource, namespace))
        found: tuple[Object, ...] = known[key]
        return found

    def revision(self, group: str, resource: str) -> int:
        return self._lister.revision(group, resource)

    def _known(self, group: str, resource: str) -> dict[tuple[str, ...], Any]:
        revision = self._lister.revision(group, resource)
        kept = self._read.get(resource)
        if kept is None or kept[0] != revision:
            kept = self._read[resource] = (revision, {})
        return kept[1]
