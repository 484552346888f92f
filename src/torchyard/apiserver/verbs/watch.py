"""watch: a stream of changes, from a revision, from now, or beginning with everything there is."""

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
from torchyard.apiserver.store.store import Compacted
from torchyard.apiserver.store.watch import Change, Watcher
from torchyard.apiserver.verbs.list import revision_of, too_large_version
from torchyard.apiserver.verbs.selection import Selection, select

Piece = TypeVar("Piece")
_Piece_co = TypeVar("_Piece_co", covariant=True)
BOOKMARK_SECONDS = 60.0
# Upstream ends a watch without a timeout after 30 to 60 minutes, at random, so that clients do not all come at once.
SHORTEST_WATCH = 1800.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
# Initial events are handed over in pieces of about this size.
_PIECE = 256 << 10


class EventEncoder(Protocol[_Piece_co]):
    """How events are told: as the bytes of a stream (`wire.encode`), or as objects (`wire.handover`)."""

    def event(self, change: Change, record: Record) -> Any: ...

    def first_event(self, change: Change, record: Record) -> Any: ...

    def bookmark(self, revision: int, *, annotations: dict[str, str] | None = None) -> Any: ...

    def error(self, status: dict[str, Any]) -> Any: ...

    def piece(self, events: list[Any]) -> _Piece_co: ...


def watch(registry: Registry, ctx: RequestContext, telling: EventEncoder[Piece]) -> AsyncGenerator[Piece, None]:
    """Check what is asked, subscribe at once, and answer the stream. Nothing between call and stream is missed."""
    query = ctx.query
    initial = _initial_events(ctx)
    selection = select(ctx)
    said = query.get("resourceVersion")
    revision = revision_of(said) if said else 0
    if revision > registry.store.revision:
        raise too_large_version(revision, registry.store.revision)
    from_state = initial or (initial is None and revision == 0)
    since = None if from_state or revision == 0 else revision
    start = _Start(registry.store.revision, _state(registry, selection) if from_state else [])
    try:
        watcher = registry.store.watch(
            selection.prefix,
            since=since,
            matches=selection.matches,
            encoder=telling.event,
            first=None if start.records else telling.first_event,
        )
    except Compacted as gone:
        return _one(telling.piece([telling.error(errors.expired(gone.message).body())]))
    seconds = _seconds(query.number("timeoutSeconds"))
    bookmarks = query.flag("allowWatchBookmarks")
    return _stream(registry, watcher, telling, start, initial=bool(initial), bookmarks=bookmarks, seconds=seconds)


def _initial_events(ctx: RequestContext) -> bool | None:
    """sendInitialEvents with upstream's rules for it (ValidateListOptions)."""
    query = ctx.query
    match, found = query.get("resourceVersionMatch"), []
    if "sendInitialEvents" in query:
        if match != "NotOlderThan":
            if not match:
                found.append(
                    field_errors.forbidden(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    )
                )
            else:
                found.append(field_errors.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
        if query.get("continue"):
            found.append(field_errors.forbidden("continue", "sendInitialEvents is forbidden for this resource"))
    elif match:
        found.append(field_errors.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch"))
    if found:
        raise errors.invalid("ListOptions", "meta.k8s.io", "", found)
    return query.flag("sendInitialEvents") if "sendInitialEvents" in query else None


def _seconds(seconds: int) -> float:
    return float(seconds) if seconds > 0 else SHORTEST_WATCH * (1 + random.random())


class _Start(NamedTuple):
    """What a watch begins with, and the revision at which it was so."""

    revision: int
    records: list[Record]


def _state(registry: Registry, selection: Selection) -> list[Record]:
    """Everything that is there now."""
    there = registry.store.snapshot(registry.store.revision, selection.prefix)
    return [record for record in there if selection.matches is None or selection.matches(record)]


def _initial(records: list[Record], telling: EventEncoder[Piece]) -> Iterator[Piece]:
    """What is there as ADDED events, each made when the ones before it are on their way."""
    events: list[Any] = []
    size, tell = 0, telling.first_event
    for record in records:
        events.append(tell("ADDED", record))
        size, tell = size + len(record.data), telling.event
        if size > _PIECE:
            yield telling.piece(events)
            events, size = [], 0
    if events:
        yield telling.piece(events)


async def _stream(
    registry: Registry,
    watcher: Watcher,
    telling: EventEncoder[Piece],
    start: _Start,
    *,
    initial: bool,
    bookmarks: bool,
    seconds: float,
) -> AsyncGenerator[Piece, None]:
    """Whoever is sent a bookmark goes on from there: so nothing from before it may still have to be told."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        for piece in _initial(start.records, telling):
            yield piece
        start.records.clear()
        if initial and bookmarks:
            yield telling.piece([telling.bookmark(start.revision, annotations=_INITIAL_END)])
        next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else inf
        while (now := loop.time()) < end:
            events = await watcher.take(min(end, next_bookmark) - now)
            if events is None:
                return
            if events:
                yield telling.piece(events)
                await asyncio.sleep(registry.store.pause_of(watcher, len(events)))
            elif loop.time() >= next_bookmark:
                next_bookmark = loop.time() + BOOKMARK_SECONDS
                yield telling.piece([telling.bookmark(registry.store.revision)])
        last = watcher.left()
        if bookmarks and not watcher.overrun:
            last.append(telling.bookmark(registry.store.revision))
        if last:
            yield telling.piece(last)
    finally:
        registry.store.unwatch(watcher)


async def _one(piece: Piece) -> AsyncGenerator[Piece, None]:
    yield piece
