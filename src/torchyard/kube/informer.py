"""A live copy of one resource: listed once, kept current by a watch, with indexes and change handlers.

Objects in the cache are shared: readers must not change them. Handlers are plain functions that put keys into queues.
They come slimmed: without managedFields, which are half of an object, of no use to a controller, and kept by the server
when an update leaves them out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.kube.client import Client, WatchEvent
from torchyard.kube.transform import strip_and_intern, strip_managed_fields

log = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name
ResourceEventHandler = Callable[[str, Object, Object | None], None]  # change, object, the one before
IndexFunc = Callable[[Object], Iterable[str]]
Transform = Callable[[Object], Object]  # what is kept of an object; metadata always, but for managedFields

_FIRST_DELAY, _LONGEST_DELAY = 0.2, 30.0
# Shorter than the idle limits of common proxies, so that a dead connection is noticed.
_WATCH_SECONDS = 300
_OF_A_WHOLE = (strip_and_intern, strip_managed_fields)  # they keep the spec as it is
# Longer than any watch that the server ends as asked: then nobody is at the other end.
_SILENCE_SECONDS = _WATCH_SECONDS + 60


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def by_namespace(obj: Object) -> tuple[str]:
    return (obj["metadata"].get("namespace", ""),)


def by_key(obj: Object) -> list[str]:
    """Namespace and name in one text."""
    return ["/".join(key_of(obj))]


def by_owner(obj: Object) -> list[str]:
    """The uid of the controller that an object belongs to."""
    return [one["uid"] for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")]


class Informer:
    """`run` until cancelled; `synced` is set once the cache holds everything."""

    def __init__(
        self,
        client: Client,
        ref: GroupVersionResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunc] | None = None,
        transform: Transform = strip_and_intern,
    ) -> None:
        self.ref, self.transform = ref, transform
        self.synced = asyncio.Event()
        self._client = client
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._objects: dict[Key, Object] = {}
        self._handlers: list[ResourceEventHandler] = []
        self._index_of: dict[str, IndexFunc] = {}
        self._indexes: dict[str, dict[str, dict[Key, Object]]] = {}
        for name, index in (indexes or {}).items():
            self.add_index(name, index)
        self._watch_list = True  # until the server says that it has none
        self._revision = ""

    def add_index(self, name: str, index: IndexFunc) -> None:
        """Before `run`: what `by(name, value)` finds objects by."""
        if self._index_of.setdefault(name, index) is not index:
            raise ValueError(f"{self.ref.plural} are indexed by {name!r} in another way already")
        self._indexes.setdefault(name, {})

    def on_change(self, handler: ResourceEventHandler) -> None:
        self._handlers.append(handler)

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def by(self, index: str, value: str) -> list[Object]:
        return list(self._indexes[index].get(value, {}).values())

    def has_seen(self, obj: Object) -> bool:
        """Whether the cache is as new as this state of an object: then it knows better, also that it is gone."""
        return int(self._revision or 0) >= int(obj["metadata"]["resourceVersion"])

    def count(self, index: str, value: str) -> int:
        return len(self._indexes[index].get(value, ()))

    def __len__(self) -> int:
        return len(self._objects)

    async def run(self) -> None:
        delay, heard = _FIRST_DELAY, ""
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await (self._follow() if self._revision else self._fill())
                continue
            except TimeoutError:
                said: YardError = YardError(f"nothing was heard for {_SILENCE_SECONDS} s")
            except StatusError as error:
                if error.status == 410:
                    self._revision = ""  # too far behind: start over
                    continue
                said = error
            except YardError as error:
                said = error
            if self._revision != heard:
                delay, heard = _FIRST_DELAY, self._revision  # it was there in between: a restart, not an absence
            log.warning("watching %s: %s; trying again in %.1f s", self.ref.plural, said, delay)
            await asyncio.sleep(delay * (0.5 + random.random()))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _fill(self) -> None:
        if self._watch_list:
            try:
                return await self._fill_by_watch()
            except StatusError as error:
                if error.status not in (400, 422):
                    raise
                self._watch_list = False
        listing = await self._client.list(self.ref, self._namespace, labels=self._labels, fields=self._fields)
        self._replace({key_of(obj): self.transform(obj) for obj in listing.items}, listing.revision)
        return None

    async def _fill_by_watch(self) -> None:
        """WatchList: the initial objects come as events, and a bookmark says that they are complete."""
        found: dict[Key, Object] = {}
        async with aclosing(self._watch(initial=True)) as stream:
            async for change, obj in stream:
                if change == "BOOKMARK":
                    annotations = obj["metadata"].get("annotations") or {}
                    if annotations.get("k8s.io/initial-events-end") == "true":
                        self._replace(found, obj["metadata"]["resourceVersion"])
                        break
                elif change == "DELETED":
                    found.pop(key_of(obj), None)
                else:
                    found[key_of(obj)] = self.transform(obj)
            else:
                return
            async for change, obj in stream:
                self._take(change, obj)

    async def _follow(self) -> None:
        if not self._revision:
            return
        async with aclosing(self._watch(since=self._revision)) as stream:
            async for change, obj in stream:
                self._take(change, obj)

    def _watch(self, *, since: str = "", initial: bool = False) -> AsyncGenerator[WatchEvent, None]:
        return self._client.watch(
            self.ref,
            self._namespace,
            since=since,
            initial=initial,
            labels=self._labels,
            fields=self._fields,
            seconds=_WATCH_SECONDS,
        )

    def _take(self, change: str, obj: Object) -> None:
        self._revision = obj["metadata"]["resourceVersion"]
        if change == "BOOKMARK":
            return
        key = key_of(obj)
        before = self._objects.get(key)
        if change == "DELETED":
            self._objects.pop(key, None)
            self._reindex(key, before, None)
            self._tell("DELETED", obj, before)
        else:
            obj = self._objects[key] = self._kept(obj, before)
            self._reindex(key, before, obj)
            self._tell("MODIFIED" if before is not None else "ADDED", obj, before)

    def _kept(self, obj: Object, before: Object | None) -> Object:
        """Most changes are of a status: a spec that is what it was need be neither kept twice nor looked through."""
        spec = obj.get("spec")
        if spec is None or before is None or self.transform not in _OF_A_WHOLE or before.get("spec") != spec:
            return self.transform(obj)
        obj["spec"] = None
        obj = self.transform(obj)
        obj["spec"] = before["spec"]
        return obj

    def _replace(self, found: dict[Key, Object], revision: str) -> None:
        """Take a complete list as the new truth, and tell the handlers what that changes."""
        before, self._revision = self._objects, revision
        self._objects = dict(found)
        for key, old in before.items():
            if key not in found:
                self._reindex(key, old, None)
                self._tell("DELETED", old, old)
        for key, obj in found.items():
            known = before.get(key)
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._reindex(key, known, obj)
                self._tell("MODIFIED" if known is not None else "ADDED", obj, known)
        self.synced.set()

    def _reindex(self, key: Key, before: Object | None, after: Object | None) -> None:
        for name, index_of in self._index_of.items():
            index = self._indexes[name]
            if before is not None:
                for value in index_of(before):
                    held = index.get(value)
                    if held is not None:
                        held.pop(key, None)
                        if not held:
                            del index[value]
            if after is not None:
                for value in index_of(after):
                    index.setdefault(value, {})[key] = after

    def _tell(self, change: str, obj: Object, before: Object | None) -> None:
        for handler in self._handlers:
            handler(change, obj, before)
