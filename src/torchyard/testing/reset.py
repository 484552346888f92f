"""The store of a plane as it was: everything that a test created is removed, everything it changed is restored."""

from __future__ import annotations

import asyncio

from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.store import Store

Snapshot = dict[str, bytes]


def take_snapshot(store: Store) -> Snapshot:
    """The encoded objects by key."""
    return {record.key: record.data for collection in store.collections() for record in collection.below("")}


async def restore(store: Store, snapshot: Snapshot) -> None:
    """Write what differs from a snapshot. Watchers, such as the controllers, see it as changes of the objects."""
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
    # an object that a controller changes meanwhile keeps that change
    await asyncio.gather(*writes, return_exceptions=True)


def _decode(data: bytes) -> dict[str, object]:
    import orjson

    obj: dict[str, object] = orjson.loads(data)
    return obj
