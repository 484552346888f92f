"""watch: a stream of changes, from a revision, from now, or beginning with everything there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator

import orjson

from torchyard.api import errors, faults
from torchyard.apiserver.api import Api
from torchyard.apiserver.call import Call
from torchyard.apiserver.store.events import Watcher
from torchyard.apiserver.store.store import Compacted
from torchyard.apiserver.verbs.list import revision_of, too_large_version
from torchyard.apiserver.verbs.selection import Selection, select
from torchyard.apiserver.wire.encode import ObjectEncoder

BOOKMARK_SECONDS = 60.0
# Upstream ends a watch without a timeout after 30 to 60 minutes, at random, so that clients do not all come at once.
SHORTEST_WATCH = 1800.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
# Initial events are handed over in pieces of about this size.
_PIECE = 256 << 10


def watch(api: Api, call: Call, encoder: ObjectEncoder) -> AsyncGenerator[bytes, None]:
    """Check what is asked, subscribe at once, and answer the stream. Nothing between call and stream is missed."""
    query = call.query
    initial = _initial_events(call)
    selection = select(call)
    said = query.get("resourceVersion")
    revision = revision_of(said) if said else 0
    if revision > api.store.revision:
        raise too_large_version(revision, api.store.revision)
    from_state = initial or (initial is None and revision == 0)
    since = None if from_state or revision == 0 else revision
    state = _state(api, selection, encoder) if from_state else []
    try:
        watcher = api.store.watch(
            selection.prefix,
            since=since,
            matches=selection.matches,
            encoder=encoder.event,
            first=None if state else encoder.first_event,
        )
    except Compacted as gone:
        return _one(_error_event(errors.expired(gone.message)))
    seconds = _seconds(query.number("timeoutSeconds"))
    bookmarks = query.flag("allowWatchBookmarks")
    return _stream(api, watcher, encoder, state=state, initial=bool(initial), bookmarks=bookmarks, seconds=seconds)


def _initial_events(call: Call) -> bool | None:
    """sendInitialEvents with upstream's rules for it (ValidateListOptions)."""
    query = call.query
    match, found = query.get("resourceVersionMatch"), []
    if "sendInitialEvents" in query:
        if match != "NotOlderThan":
            if not match:
                found.append(
                    faults.forbidden(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    )
                )
            else:
                found.append(faults.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
        if query.get("continue"):
            found.append(faults.forbidden("continue", "sendInitialEvents is forbidden for this resource"))
    elif match:
        found.append(faults.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch"))
    if found:
        raise errors.invalid("ListOptions", "meta.k8s.io", "", found)
    return query.flag("sendInitialEvents") if "sendInitialEvents" in query else None


def _seconds(seconds: int) -> float:
    return float(seconds) if seconds > 0 else SHORTEST_WATCH * (1 + random.random())


def _state(api: Api, selection: Selection, encoder: ObjectEncoder) -> list[bytes]:
    """Everything that is there now, as ADDED events in pieces."""
    pieces: list[bytes] = []
    piece: list[bytes] = []
    size = 0
    for record in api.store.snapshot(api.store.revision, selection.prefix):
        if selection.matches is None or selection.matches(record):
            data = encoder.event("ADDED", record) if size or pieces else encoder.first_event("ADDED", record)
            piece.append(data)
            size += len(data)
            if size > _PIECE:
                pieces.append(b"".join(piece))
                piece, size = [], 0
    if piece:
        pieces.append(b"".join(piece))
    return pieces


async def _stream(
    api: Api,
    watcher: Watcher,
    encoder: ObjectEncoder,
    *,
    state: list[bytes],
    initial: bool,
    bookmarks: bool,
    seconds: float,
) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        start = api.store.revision
        for piece in state:
            yield piece
        if initial and bookmarks:
            yield encoder.bookmark(start, annotations=_INITIAL_END)
        next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else end
        while (now := loop.time()) < end:
            if now >= next_bookmark:
                next_bookmark = now + BOOKMARK_SECONDS
                yield encoder.bookmark(api.store.revision)
            events = await watcher.take(min(end, next_bookmark) - now)
            if events is None:
                return
            if events:
                yield events[0] if len(events) == 1 else b"".join(events)
                await asyncio.sleep(api.store.pause_of(watcher, len(events)))
        if bookmarks:
            yield encoder.bookmark(api.store.revision)
    finally:
        api.store.unwatch(watcher)


async def _one(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


def _error_event(error: errors.StatusError) -> bytes:
    return b'{"type":"ERROR","object":' + orjson.dumps(error.body()) + b"}\n"
