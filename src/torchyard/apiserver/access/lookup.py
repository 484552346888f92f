"""What access decisions may read: the latest stored objects, and how new they are. Never writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Object = dict[str, Any]


class Lookup(Protocol):
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
