"""Watch events for clients in this process: objects, without JSON in between."""

from __future__ import annotations

import orjson

from torchyard.api.objects import Object
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Change
from torchyard.apiserver.wire.encode import ObjectEncoder


class InProcessEncoder:
    """What `ObjectEncoder` is for HTTP clients. There is one for each watch, so that no two watches share an object."""

    def __init__(self, encoder: ObjectEncoder) -> None:
        self._encoder = encoder

    def event(self, change: Change, record: Record) -> Object:
        return {"type": change, "object": self._encoder.take(record)}

    first_event = event

    def chunk(self, events: list[Object]) -> list[Object]:
        return events

    def error(self, status: Object) -> Object:
        return {"type": "ERROR", "object": status}

    def bookmark(self, revision: int, *, annotations: dict[str, str] | None = None) -> Object:
        event: Object = orjson.loads(self._encoder.bookmark(revision, annotations=annotations))
        return event
