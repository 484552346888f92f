"""Encodes records for a client: the object, a Table or metadata only, in the client's version.

The plain form in the stored version is the stored bytes themselves, so a list is a join and an event a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import orjson

from torchyard.api.columns import Columns
from torchyard.api.objects import Object
from torchyard.api.printing import IncludeObject, columns_of, table
from torchyard.api.resources import Resource
from torchyard.apiserver.registry.conversion import from_storage
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Change
from torchyard.apiserver.wire.negotiate import ResponseFormat

# How many times faster than decoding the stored bytes are copied, and how many times slower YAML is written.
_COPY_FACTOR, _YAML_FACTOR = 256, 32


class ObjectEncoder:
    """Encodes the objects of one resource in one format. Shared by all requests for that format."""

    def __init__(
        self,
        resource: Resource,
        storage: Resource,
        format: ResponseFormat,
        *,
        include: IncludeObject = "Metadata",
        clock: Callable[[], datetime],
        schema_revision: int = 0,
    ) -> None:
        self.resource = resource
        self._storage = storage
        self._format = format
        self._include = include
        self._clock = clock
        self._schema_revision = schema_revision
        self._is_stored_form = format.form == "object" and not format.yaml and resource is storage
        self._columns: Columns = (
            columns_of(resource.group, resource.plural) if resource.custom is None else resource.custom.columns
        )
        head = {"kind": storage.kind, "apiVersion": storage.api_version}
        self._head = orjson.dumps(head)[:-1] + b","

    @property
    def content_type(self) -> str:
        return self._format.content_type

    def decode(self, record: Record) -> Object:
        """The object in the client's version, with the defaults of a schema that is newer than the record."""
        return self._converted(record.object(), record)

    def take(self, record: Record) -> Object:
        """The object in the client's version and format, for a client in this process that owns it from now on."""
        return self._form(self._converted(record.take(), record))

    def _converted(self, obj: Object, record: Record) -> Object:
        if self.resource is not self._storage:
            return from_storage(self.resource, self._storage, obj)
        if self.resource.custom is not None and record.rev < self._schema_revision:
            self.resource.custom.normalize(obj)
        return obj

    def _is_as_stored(self, record: Record) -> bool:
        return self._is_stored_form and record.rev >= self._schema_revision

    def cost(self, records: Sequence[Record]) -> int:
        """The cost of encoding records, as the length of JSON that takes about as long to decode."""
        return self._weighted(sum([len(record.data) for record in records]))

    def cost_of(self, record: Record) -> int:
        return self._weighted(len(record.data))

    def _weighted(self, size: int) -> int:
        if self._is_stored_form:
            return size // _COPY_FACTOR
        return size * _YAML_FACTOR if self._format.yaml else size

    def object(self, record: Record) -> bytes:
        if self._is_as_stored(record):
            return record.data
        if self._format.form == "table":
            return self._table([self.decode(record)], {"resourceVersion": str(record.rev)})
        return self._dump(self._form(self.decode(record)))

    def event(self, change: Change, record: Record) -> bytes:
        return _event(change, self._event_object(record, definitions=False))

    def first_event(self, change: Change, record: Record) -> bytes:
        """The first event of a watch. As a Table it has the column definitions, which later events omit."""
        return _event(change, self._event_object(record, definitions=True))

    def _event_object(self, record: Record, *, definitions: bool) -> bytes:
        if self._is_as_stored(record):
            return record.data
        if self._format.form == "table":
            metadata = {"resourceVersion": str(record.rev)}
            return self._table([self.decode(record)], metadata, definitions=definitions)
        return orjson.dumps(self._form(self.decode(record)))

    def chunk(self, events: Sequence[bytes]) -> bytes:
        """Events that are sent together."""
        return events[0] if len(events) == 1 else b"".join(events)

    def error(self, status: Object) -> bytes:
        return b'{"type":"ERROR","object":' + orjson.dumps(status) + b"}\n"

    def bookmark(self, revision: int, *, annotations: dict[str, str] | None = None) -> bytes:
        metadata: Object = {"resourceVersion": str(revision)}
        if not self.resource.custom:
            metadata["creationTimestamp"] = None
        if annotations:
            metadata["annotations"] = annotations
        if self._format.form == "table":
            obj: Object = orjson.loads(self._table([], {"resourceVersion": str(revision)}))
            kind = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self._format.version}"}
            if self._include == "Object":
                kind = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
            obj["rows"] = [{"cells": [""] * len(obj["columnDefinitions"]), "object": {**kind, "metadata": metadata}}]
        elif self._format.form == "metadata":
            obj = self._form({"metadata": metadata})
        else:
            obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":' + orjson.dumps(obj) + b"}\n"

    def encode_list(self, records: Sequence[Record], metadata: Object) -> bytes:
        if self._is_stored_form:
            return b"".join(
                (
                    b'{"kind":"%s","apiVersion":"%s","metadata":'
                    % (self.resource.list_kind.encode(), self.resource.api_version.encode()),
                    orjson.dumps(metadata),
                    b',"items":[',
                    b",".join(self._items(records)),
                    b"]}",
                )
            )
        objects = [self.decode(record) for record in records]
        if self._format.form == "table":
            return self._table(objects, metadata)
        if self._format.form == "metadata":
            kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{self._format.version}"
            objects = [self._form(obj) for obj in objects]
        else:
            kind, version = self.resource.list_kind, self.resource.api_version
            if not self.resource.custom:
                for obj in objects:
                    del obj["kind"], obj["apiVersion"]
        return self._dump({"kind": kind, "apiVersion": version, "metadata": metadata, "items": objects})

    def _items(self, records: Iterable[Record]) -> Iterable[bytes]:
        """As upstream: the items of a built-in list omit their kind, those of a custom one have it."""
        if self.resource.custom:
            return (self.object(record) for record in records)
        head, size = self._head, len(self._head)
        return (
            b"{" + record.data[size:] if record.data.startswith(head) else _without_kind(record) for record in records
        )

    def _form(self, obj: Object) -> Object:
        if self._format.form == "metadata":
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{self._format.version}",
                "metadata": obj["metadata"],
            }
        return obj

    def _table(self, objects: list[Object], metadata: Object, *, definitions: bool = True) -> bytes:
        return orjson.dumps(
            table(
                self._columns,
                objects,
                self._clock(),
                include=self._include,
                version=self._format.version,
                metadata=metadata,
                definitions=definitions,
            )
        )

    def _dump(self, obj: Object) -> bytes:
        if self._format.yaml:
            import yaml

            return yaml.safe_dump(obj).encode()
        return orjson.dumps(obj)


def _event(change: Change, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (change.encode(), data)


def _without_kind(record: Record) -> bytes:
    obj = record.object()
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return orjson.dumps(obj)
