"""What is served right now: the built-in resources and those that CRDs add while the server runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torchyard.api.resources import Resource


class Catalog:
    """Served resources by (group, version, plural)."""

    def __init__(self, builtin: Iterable[Resource]) -> None:
        self._builtin = {(one.group, one.version, one.plural): one for one in builtin}
        self._served = dict(self._builtin)
        self._by_kind = _by_kind(self._served)
        self._by_crd: dict[str, list[Resource]] = {}
        self._since: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource that serves a kind, for owner references and the like."""
        return self._by_kind.get((group, version, kind))

    def group_versions(self) -> set[tuple[str, str]]:
        return {(group, version) for group, version, _ in self._served}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def stored(self) -> Iterator[Resource]:
        """One resource for each collection of the store: the storage version of everything that can be listed."""
        for one in self._served.values():
            if (
                "list" in one.verbs
                and one.version == (one.storage_version or one.version)
                and storage_group(one) == one.group
            ):
                yield one

    def storage(self, resource: Resource) -> Resource:
        """The resource in whose version and group the objects of `resource` are kept."""
        version = resource.storage_version or resource.version
        return self._served.get((storage_group(resource), version, resource.plural), resource)

    def put_custom(self, crd: str, resources: list[Resource], *, revision: int) -> None:
        """Serve the versions of a CRD, in place of those it served before; `revision` is the definition's own."""
        self._by_crd[crd] = resources
        self._since[crd] = revision
        self._rebuild()

    def schema_revision(self, resource: Resource) -> int:
        """Objects written later than this carry the defaults of the present schema; older ones may not."""
        return self._since.get(f"{resource.plural}.{resource.group}", 0) if resource.custom is not None else 0

    def drop_custom(self, crd: str) -> None:
        if self._by_crd.pop(crd, None) is not None:
            self._rebuild()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _rebuild(self) -> None:
        served = dict(self._builtin)
        for resources in self._by_crd.values():
            for one in resources:
                served.setdefault((one.group, one.version, one.plural), one)
        self._served = served
        self._by_kind = _by_kind(served)
        for listener in self._listeners:
            listener()


def _by_kind(served: dict[tuple[str, str, str], Resource]) -> dict[tuple[str, str, str], Resource]:
    """By (group, version, kind); reviews and the like, which cannot be fetched, are no one's kind."""
    return {(one.group, one.version, one.kind): one for one in served.values() if "get" in one.verbs}


def storage_group(resource: Resource) -> str:
    return resource.group if resource.storage_group is None else resource.storage_group


def collection_key(resource: Resource) -> str:
    """The store's collection of a resource: `/pods/`, `/jobs.batch/`. Versions share it."""
    return collection_named(storage_group(resource), resource.plural)


def collection_named(group: str, plural: str) -> str:
    return f"/{plural}.{group}/" if group else f"/{plural}/"


def object_key(resource: Resource, namespace: str, name: str) -> str:
    return f"{collection_key(resource)}{namespace}/{name}"
