"""The served resources: the built-in ones, and those that CRDs add while the server runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torchyard.api.resources import Resource


class Catalog:
    """Served resources by (group, version, plural)."""

    def __init__(self, builtin: Iterable[Resource]) -> None:
        self._builtin = {(resource.group, resource.version, resource.plural): resource for resource in builtin}
        self._built_in_groups = {group for group, _, _ in self._builtin}
        self._served = dict(self._builtin)
        self._by_kind = _by_kind(self._served)
        self._by_crd: dict[str, list[Resource]] = {}
        self._revisions: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource of a kind, for example of an owner reference."""
        return self._by_kind.get((group, version, kind))

    def has_built_in_group(self, group: str) -> bool:
        """Whether the server itself serves a group, not only CRDs."""
        return group in self._built_in_groups

    def group_versions(self) -> set[tuple[str, str]]:
        return {(group, version) for group, version, _ in self._served}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def stored(self) -> Iterator[Resource]:
        """One resource for each collection of the store: the storage version of every resource that can be listed."""
        for resource in self._served.values():
            if (
                "list" in resource.verbs
                and resource.version == (resource.storage_version or resource.version)
                and storage_group(resource) == resource.group
            ):
                yield resource

    def storage(self, resource: Resource) -> Resource:
        """The resource in whose group and version the objects of `resource` are stored.

        The objects of a resource with a conversion webhook are in its own version until they are written: the
        registry's converter converts them when they are read and before they are stored.
        """
        if resource.has_conversion_webhook:
            return resource
        version = resource.storage_version or resource.version
        return self._served.get((storage_group(resource), version, resource.plural), resource)

    def put_custom(self, crd: str, resources: list[Resource], *, revision: int) -> None:
        """Serve the versions of a CRD instead of its earlier ones; `revision` is that of the CRD."""
        self._by_crd[crd] = resources
        self._revisions[crd] = revision
        self._rebuild()

    def schema_revision(self, resource: Resource) -> int:
        """Objects written after this revision have the defaults of the current schema; older ones may not."""
        return self._revisions.get(f"{resource.plural}.{resource.group}", 0) if resource.custom is not None else 0

    def drop_custom(self, crd: str) -> None:
        if self._by_crd.pop(crd, None) is not None:
            self._rebuild()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _rebuild(self) -> None:
        served = dict(self._builtin)
        for resources in self._by_crd.values():
            for resource in resources:
                served.setdefault((resource.group, resource.version, resource.plural), resource)
        self._served = served
        self._by_kind = _by_kind(served)
        self.notify()

    def notify(self) -> None:
        """Say that what is served has changed, here or by an aggregated API."""
        for listener in self._listeners:
            listener()


def _by_kind(served: dict[tuple[str, str, str], Resource]) -> dict[tuple[str, str, str], Resource]:
    """By (group, version, kind), without virtual resources such as reviews, which cannot be fetched."""
    return {
        (resource.group, resource.version, resource.kind): resource
        for resource in served.values()
        if "get" in resource.verbs
    }


def storage_group(resource: Resource) -> str:
    return resource.group if resource.storage_group is None else resource.storage_group


def collection_key(resource: Resource) -> str:
    """The store's collection of a resource: `/pods/`, `/jobs.batch/`. Versions share it."""
    return collection_named(storage_group(resource), resource.plural)


def collection_named(group: str, plural: str) -> str:
    return f"/{plural}.{group}/" if group else f"/{plural}/"


def object_key(resource: Resource, namespace: str, name: str) -> str:
    return f"{collection_key(resource)}{namespace}/{name}"
