"""The store of a plane as it was: everything that a test created is removed, everything it changed is restored."""

from __future__ import annotations

import asyncio

from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.store.store import Store

Snapshot = dict[str, bytes]
# A controller reacts to a write within a few milliseconds.
_QUIET_SECONDS = 0.004
_SETTLE_SECONDS = 0.1
_PASSES = 20


def take_snapshot(store: Store) -> Snapshot:
    """The encoded objects by key."""
    return {record.key: record.data for collection in store.collections() for record in collection.below("")}


async def settle(store: Store, *, quiet: float, limit: float) -> None:
    """Wait until nothing was written for a while, in seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    revision = -1
    while revision != store.revision and loop.time() < end:
        revision = store.revision
        await asyncio.sleep(quiet)


async def restore(store: Store, snapshot: Snapshot) -> None:
    """Write what differs from a snapshot. Watchers, such as the controllers, see it as changes of the objects.

    Controllers may be creating objects, such as the pods of a Job, while theirs is removed: those are removed next.
    """
    for _ in range(_PASSES):
        if not await _write_differences(store, snapshot):
            return
        await settle(store, quiet=_QUIET_SECONDS, limit=_SETTLE_SECONDS)


async def _write_differences(store: Store, snapshot: Snapshot) -> bool:
    """Whether there were any."""
    records = {record.key: record for collection in store.collections() for record in collection.below("")}
    writes = [
        store.delete(key, Draft(record.object()), expected=record.rev)
        for key, record in records.items()
        if key not in snapshot
    ]
    for key, data in snapshot.items():
        record = records.get(key)
        if record is None or record.data != data:
            writes.append(store.put(key, Draft(_decode(data)), expected=record.rev if record else 0))
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, RevisionConflict):
            raise result  # a conflict: a controller has changed the object meanwhile
    return bool(writes)


def _decode(data: bytes) -> dict[str, object]:
    import orjson

    obj: dict[str, object] = orjson.loads(data)
    return obj
