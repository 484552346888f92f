"""A few objects in memory, seen as access decisions see the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api.errors import qualified_resource
from torchyard.api.objects import Object

# The plural of every kind the tests here use.
PLURALS = {
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
    "RuntimeClass": "runtimeclasses",
    "IngressClass": "ingressclasses",
}


class MemoryRecord(NamedTuple):
    key: str
    rev: int
    value: Object

    def object(self) -> Object:
        return self.value


class MemoryLister:
    """Objects by (resource.group, namespace, name)."""

    def __init__(self, *objects: Object) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._revisions: dict[str, int] = {}
        self._object_revisions: dict[tuple[str, tuple[str, str]], int] = {}
        self.reads = 0
        self.put(*objects)

    def put(self, *objects: Object) -> None:
        for obj in objects:
            key, key_in_resource = _location(obj)
            self._objects.setdefault(key, {})[key_in_resource] = obj
            self._revisions[key] = self._revisions.get(key, 0) + 1
            self._object_revisions[key, key_in_resource] = self._revisions[key]

    def remove(self, *objects: Object) -> None:
        for obj in objects:
            key, key_in_resource = _location(obj)
            del self._objects[key][key_in_resource]
            self._revisions[key] += 1

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        return self._objects.get(qualified_resource(resource, group), {}).get((namespace, name))

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]:
        self.reads += 1
        objects = self._objects.get(qualified_resource(resource, group), {})
        return [obj for (object_namespace, _), obj in objects.items() if not namespace or object_namespace == namespace]

    def records(self, group: str, resource: str) -> Iterable[MemoryRecord]:
        self.reads += 1
        objects = self._objects.get(qualified_resource(resource, group), {})
        return [MemoryRecord("/".join(key), id(obj), obj) for key, obj in objects.items()]

    def revisions(self, group: str, resource: str, namespace: str) -> dict[str, int]:
        key = qualified_resource(resource, group)
        names = [name for object_namespace, name in self._objects.get(key, {}) if object_namespace == namespace]
        return {name: self._object_revisions[key, (namespace, name)] for name in names}

    def revision(self, group: str, resource: str) -> int:
        return self._revisions.get(qualified_resource(resource, group), 0)


def _location(obj: Object) -> tuple[str, tuple[str, str]]:
    group, _, _ = obj["apiVersion"].rpartition("/")
    plural = PLURALS.get(obj["kind"], f"{obj['kind'].lower()}s")
    metadata = obj["metadata"]
    return qualified_resource(plural, group), (metadata.get("namespace", ""), metadata["name"])
