"""A local cache of one resource: listed once, kept current by a watch, with indexes and event handlers.

Objects in the cache are shared: readers must not change them. Handlers are plain functions that add keys to work
queues. Objects pass a transform first, which keeps what controllers read; without one, everything but managedFields. An
object of a cache with a transform of its own is not whole: its writer uses patches, or reads the object first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.kube.client import Client, WatchEvent
from torchyard.kube.transform import intern_strings, strip_managed_fields

log = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name
ResourceEventHandler = Callable[[str, Object, Object | None], None]  # event type, object, previous object
IndexFunc = Callable[[Object], Iterable[str]]
Transform = Callable[
    [Object], Object
]  # what the cache stores of an object; must keep the metadata except managedFields

_MIN_DELAY, _MAX_DELAY = 0.2, 30.0
# Shorter than the idle timeouts of common proxies, to detect dead connections.
_WATCH_SECONDS = 300
# After so many changes of a list, other tasks of the event loop run.
_YIELD_INTERVAL = 100
# The server ends each watch after _WATCH_SECONDS; if it does not, the connection is dead.
_SILENCE_SECONDS = _WATCH_SECONDS + 60


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _ends_list(event: WatchEvent) -> bool:
    """Whether all objects that existed when the watch began have been sent."""
    if event.type != "BOOKMARK":
        return False
    annotations = event.object["metadata"].get("annotations") or {}
    return annotations.get("k8s.io/initial-events-end") == "true"


def by_namespace(obj: Object) -> tuple[str]:
    return (obj["metadata"].get("namespace", ""),)


def by_owner(obj: Object) -> list[str]:
    """Index by the uid of the controlling owner."""
    return [
        reference["uid"] for reference in obj["metadata"].get("ownerReferences") or () if reference.get("controller")
    ]


class Informer:
    """`run` until cancelled; `synced` is set once the cache is complete."""

    def __init__(
        self,
        client: Client,
        ref: GroupVersionResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunc] | None = None,
        transform: Transform = strip_managed_fields,
        interns: bool = True,
    ) -> None:
        """`interns`: whether equal strings are kept once; for objects with few of them it is not worth its time."""
        self.ref, self.transform, self._interns = ref, transform, interns
        self.synced = asyncio.Event()
        self._client = client
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._objects: dict[Key, Any] = {}  # as `_pack` returns them
        self._handlers: list[ResourceEventHandler] = []
        self._index_of: dict[str, IndexFunc] = {}
        self._indexes: dict[str, dict[str, dict[Key, Any]]] = {}
        for name, index in (indexes or {}).items():
            self.add_index(name, index)
        self._watch_list = True  # until the server rejects it
        self._resource_version = ""

    def add_index(self, name: str, index: IndexFunc) -> None:
        """Add an index for `by(name, value)`. Call this before `run`."""
        if self._index_of.setdefault(name, index) is not index:
            raise ValueError(f"{self.ref.plural} already have another index {name!r}")
        self._indexes.setdefault(name, {})

    def keep_whole_objects(self) -> None:
        """Replace the transform by the default. Call this before `run`."""
        if self.transform is not strip_managed_fields and self._resource_version:
            raise ValueError(f"the cache of {self.ref.plural} has already begun to store a part of each object")
        self.transform = strip_managed_fields

    def on_change(self, handler: ResourceEventHandler) -> None:
        self._handlers.append(handler)

    def get(self, namespace: str, name: str) -> Object | None:
        obj: Object | None = self._objects.get((namespace, name))
        return obj

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def __iter__(self) -> Iterator[Object]:
        """The objects one by one. The cache must not change in between."""
        return iter(self._objects.values())

    @property
    def is_empty(self) -> bool:
        return not self._objects

    def by(self, index: str, value: str) -> list[Object]:
        return list(self._indexes[index].get(value, {}).values())

    def has_seen(self, obj: Object) -> bool:
        """Whether the cache is at least as new as this version of an object. Then a missing object is deleted."""
        return int(self._resource_version or 0) >= int(obj["metadata"]["resourceVersion"])

    def count(self, index: str, value: str) -> int:
        return len(self._indexes[index].get(value, ()))

    def values(self, index: str) -> list[str]:
        """The values of an index that some object has."""
        return list(self._indexes[index])

    def __len__(self) -> int:
        return len(self._objects)

    async def run(self) -> None:
        delay, last_version = _MIN_DELAY, ""
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await (self._watch_changes() if self._resource_version else self._list())
                continue
            except TimeoutError:
                failure: YardError = YardError(f"no response within {_SILENCE_SECONDS} s")
            except StatusError as error:
                if error.status == 410:
                    self._resource_version = ""  # expired: list again
                    continue
                failure = error
            except YardError as error:
                failure = error
            except Exception as error:
                # The event that caused it may be half applied: a new list makes the cache right.
                log.exception("watch raised an unexpected exception: resource=%s", self.ref.plural)
                self._resource_version, failure = "", YardError(f"{type(error).__name__}: {error}")
            if self._resource_version != last_version:
                delay, last_version = (
                    _MIN_DELAY,
                    self._resource_version,
                )  # the watch made progress, so the server only restarted
            log.warning("watch failed: resource=%s error=%s retry_seconds=%.1f", self.ref.plural, failure, delay)
            await asyncio.sleep(delay * (0.5 + random.random()))
            delay = min(delay * 2, _MAX_DELAY)

    async def _list(self) -> None:
        if self._watch_list:
            try:
                return await self._list_by_watch()
            except StatusError as error:
                if error.status not in (400, 422):
                    raise
                self._watch_list = False
        objects: dict[Key, Any] = {}
        resource_version = ""
        pages = self._client.list_pages(self.ref, self._namespace, labels=self._labels, fields=self._fields)
        async with aclosing(pages):
            async for page in pages:
                objects |= {self._key(obj): self._pack(self._trim(obj)) for obj in page.items}
                resource_version = page.resource_version
        await self._replace(objects, resource_version)
        return None

    async def _list_by_watch(self) -> None:
        """List through a watch (WatchList): objects arrive as events, and a bookmark marks the end of the list."""
        objects: dict[Key, Any] = {}
        async with aclosing(self._watch(initial=True)) as stream:
            async for events in stream:
                end = next((number for number, event in enumerate(events) if _ends_list(event)), len(events))
                for event_type, obj in events[:end]:
                    if event_type == "DELETED":
                        objects.pop(self._key(obj), None)
                    elif event_type != "BOOKMARK":
                        objects[self._key(obj)] = self._pack(self._trim(obj))
                if end < len(events):
                    await self._replace(objects, events[end].object["metadata"]["resourceVersion"])
                    self._apply_all(events[end + 1 :])
                    break
            async for events in stream:
                self._apply_all(events)

    async def _watch_changes(self) -> None:
        if not self._resource_version:
            return
        async with aclosing(self._watch(since=self._resource_version)) as stream:
            async for events in stream:
                self._apply_all(events)

    def _apply_all(self, events: Iterable[WatchEvent]) -> None:
        for event_type, obj in events:
            self._apply(event_type, obj)

    def _watch(self, *, since: str = "", initial: bool = False) -> AsyncGenerator[list[WatchEvent], None]:
        return self._client.watch_batches(
            self.ref,
            self._namespace,
            since=since,
            initial=initial,
            labels=self._labels,
            fields=self._fields,
            seconds=_WATCH_SECONDS,
        )

    def _apply(self, event_type: str, obj: Object) -> None:
        self._resource_version = obj["metadata"]["resourceVersion"]
        if event_type == "BOOKMARK":
            return
        key = self._key(obj)
        before = self.get(*key)
        if event_type == "DELETED":
            self._objects.pop(key, None)
            self._reindex(key, before, None)
            self._notify("DELETED", obj, before)
        else:
            obj = self._trim(obj, before)
            self._objects[key] = self._pack(obj)
            self._reindex(key, before, obj)
            self._notify("MODIFIED" if before is not None else "ADDED", obj, before)

    def _trim(self, obj: Object, before: Object | None = None) -> Object:
        """Apply the transform. An unchanged spec is shared with the previous object: most updates change the status."""
        if not self._interns:
            return self.transform(obj)
        spec = obj.get("spec")
        if spec is None or before is None or self.transform is not strip_managed_fields or before.get("spec") != spec:
            return intern_strings(self.transform(obj))
        obj["spec"] = None
        obj = intern_strings(self.transform(obj))
        obj["spec"] = before["spec"]
        return obj

    def _key(self, obj: Object) -> Key:
        return key_of(obj)

    def _pack(self, obj: Object) -> Any:
        """What is stored of an object; `_unpack` returns the object."""
        return obj

    def _unpack(self, stored: Any) -> Object:
        obj: Object = stored
        return obj

    async def _replace(self, objects: dict[Key, Any], resource_version: str) -> None:
        """Make the cache equal to a complete list, object by object, and call the handlers for the differences.

        Fifty thousand objects take seconds, so other tasks run in between. If this is cancelled, the cache is as after
        some of the changes, and the next list does the rest.
        """
        changes = 0
        for key in [key for key in self._objects if key not in objects]:
            old = self._unpack(self._objects.pop(key))
            self._reindex(key, old, None)
            self._notify("DELETED", old, old)
            changes += 1
            if changes % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)
        for key, stored in objects.items():
            known, obj = self.get(*key), self._unpack(stored)
            if known is not None and known["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]:
                continue
            self._objects[key] = stored
            self._reindex(key, known, obj)
            self._notify("MODIFIED" if known is not None else "ADDED", obj, known)
            changes += 1
            if changes % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)
        self._resource_version = resource_version
        self.synced.set()

    def _reindex(self, key: Key, before: Object | None, after: Object | None) -> None:
        stored = self._objects.get(key)
        for name, index_of in self._index_of.items():
            index = self._indexes[name]
            values = () if after is None else tuple(index_of(after))
            if before is not None:
                for value in index_of(before):
                    if value in values:
                        continue
                    objects = index.get(value)
                    if objects is not None:
                        objects.pop(key, None)
                        if not objects:
                            del index[value]
            for value in values:
                index.setdefault(value, {})[key] = stored

    def _notify(self, event_type: str, obj: Object, before: Object | None) -> None:
        """Call all handlers. One that raises must not keep the change from the others, nor end the watch."""
        for handler in self._handlers:
            try:
                handler(event_type, obj, before)
            except Exception:
                key = "/".join(key_of(obj))
                log.exception("event handler failed: resource=%s event=%s key=%s", self.ref.plural, event_type, key)
