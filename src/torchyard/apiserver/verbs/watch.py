"""watch: a stream of changes, from a revision, from now, or starting with the present objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from torchyard.api import errors, field_errors
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.errors import Compacted
from torchyard.apiserver.store.watch import Change, Filter, Watcher
from torchyard.apiserver.verbs.list import parse_revision, too_large_version
from torchyard.apiserver.verbs.selection import select

Chunk = TypeVar("Chunk")
_Chunk_co = TypeVar("_Chunk_co", covariant=True)
BOOKMARK_SECONDS = 60.0
# As upstream: a watch without a timeout ends after 30 to 60 minutes, at random, so that clients reconnect one by one.
SHORTEST_WATCH = 1800.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
# Initial events are sent in chunks of about this size.
_CHUNK_BYTES = 256 << 10
# Later events are sent in chunks of at most so many.
_BATCH_EVENTS = 64


class EventEncoder(Protocol[_Chunk_co]):
    """Encodes watch events: as the bytes of a stream (`wire.encode`), or as objects (`wire.in_process`)."""

    def event(self, change: Change, record: Record) -> Any: ...

    def first_event(self, change: Change, record: Record) -> Any: ...

    def bookmark(self, revision: int, *, annotations: dict[str, str] | None = None) -> Any: ...

    def error(self, status: dict[str, Any]) -> Any: ...

    def chunk(self, events: list[Any]) -> _Chunk_co: ...


def watch(
    registry: Registry, ctx: RequestContext, encoder: EventEncoder[Chunk], *, selecting: bool = True
) -> AsyncGenerator[Chunk, None]:
    """Check the options, subscribe at once, and return the stream. No change after the call is lost.

    With `selecting=False` the caller applies the selectors, and its encoder gets changes as StoreEvents in `chunk`.
    """
    query = ctx.query
    initial = _initial_events(ctx)
    selection = select(ctx)
    version = query.get("resourceVersion")
    revision = parse_revision(version) if version else 0
    if revision > registry.store.revision:
        raise too_large_version(revision, registry.store.revision)
    from_state = initial or (initial is None and revision == 0)
    since = None if from_state or revision == 0 else revision
    revision = registry.store.revision
    start = _Start(revision, list(registry.store.snapshot(revision, selection.prefix)) if from_state else [])
    try:
        watcher = registry.store.watch(
            selection.prefix,
            since=since,
            matches=selection.matches if selecting else None,
            encoder=encoder.event if selecting else None,
            first=encoder.first_event if selecting else None,
        )
    except Compacted as gone:
        return _single(encoder.chunk([encoder.error(errors.expired(gone.message).body())]))
    seconds = _seconds(query.number("timeoutSeconds"))
    bookmarks = query.flag("allowWatchBookmarks")
    return _stream(registry, watcher, encoder, start, initial=bool(initial), bookmarks=bookmarks, seconds=seconds)


def _initial_events(ctx: RequestContext) -> bool | None:
    """sendInitialEvents with upstream's rules for it (ValidateListOptions)."""
    query = ctx.query
    match, errs = query.get("resourceVersionMatch"), []
    if "sendInitialEvents" in query:
        if match != "NotOlderThan":
            if not match:
                errs.append(
                    field_errors.forbidden(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    )
                )
            else:
                errs.append(field_errors.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
        if query.get("continue"):
            errs.append(field_errors.forbidden("continue", "sendInitialEvents is forbidden for this resource"))
    elif match:
        errs.append(field_errors.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch"))
    if errs:
        raise errors.invalid("ListOptions", "meta.k8s.io", "", errs)
    return query.flag("sendInitialEvents") if "sendInitialEvents" in query else None


def _seconds(seconds: int) -> float:
    return float(seconds) if seconds > 0 else SHORTEST_WATCH * (1 + random.random())


class _Start(NamedTuple):
    """The objects that a watch starts with, before its selectors apply, and their revision."""

    revision: int
    records: list[Record]


def _initial_chunks(
    records: list[Record], matches: Filter | None, encoder: EventEncoder[Chunk]
) -> Iterator[Chunk | None]:
    """The selected objects as ADDED events, encoded one chunk at a time; None after many that are not selected."""
    events: list[Any] = []
    size, encode = 0, encoder.first_event
    for record in records:
        size += len(record.data)
        if matches is None or matches(record):
            events.append(encode("ADDED", record))
            encode = encoder.event
        if size > _CHUNK_BYTES:
            yield encoder.chunk(events) if events else None
            events, size = [], 0
    if events:
        yield encoder.chunk(events)


async def _stream(
    registry: Registry,
    watcher: Watcher,
    encoder: EventEncoder[Chunk],
    start: _Start,
    *,
    initial: bool,
    bookmarks: bool,
    seconds: float,
) -> AsyncGenerator[Chunk, None]:
    """A client resumes from its last bookmark, so a bookmark is sent only when no earlier event is still queued."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        for chunk in _initial_chunks(start.records, watcher.matches, encoder):
            if chunk is not None:
                watcher.skip_first()
                yield chunk
            await asyncio.sleep(0)  # a client in this process takes a chunk without a pause
        start.records.clear()
        if initial and bookmarks:
            yield encoder.chunk([encoder.bookmark(start.revision, annotations=_INITIAL_END)])
        next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else inf
        while (now := loop.time()) < end:
            events = await watcher.take(min(end, next_bookmark) - now)
            if events is None:
                return
            if events:
                for batch in _batches(events):
                    yield encoder.chunk(batch)
                await asyncio.sleep(registry.store.batch_pause(watcher, len(events)))
            elif watcher.is_replaying:
                await asyncio.sleep(0)
            elif loop.time() >= next_bookmark:
                next_bookmark = loop.time() + BOOKMARK_SECONDS
                yield encoder.chunk([encoder.bookmark(registry.store.revision)])
        last = watcher.drain()
        if bookmarks and not watcher.overrun and not watcher.is_replaying:
            last.append(encoder.bookmark(registry.store.revision))
        for batch in _batches(last):
            yield encoder.chunk(batch)
    finally:
        registry.store.unwatch(watcher)


def _batches(events: list[Any]) -> Iterator[list[Any]]:
    """Events that share a chunk. A client that fell behind does not get all it missed as one copy in memory."""
    for start in range(0, len(events), _BATCH_EVENTS):
        yield events[start : start + _BATCH_EVENTS]


async def _single(chunk: Chunk) -> AsyncGenerator[Chunk, None]:
    yield chunk
