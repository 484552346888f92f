"""Compaction gives the space of deleted objects back, a little at a time."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

from tests.security.test_request_fuzz import resident_bytes
from tests.support.effort import rounds

from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.store import Store

OBJECTS = rounds(5_000, 50_000)
MAX_STEP_SECONDS = 0.3
BATCH = 100


async def create_and_delete(store: Store, count: int) -> None:
    for first in range(0, count, BATCH):
        names = [f"p{number}" for number in range(first, first + BATCH)]
        drafts = [Draft({"metadata": {"name": name}, "spec": {"text": name * 300}}) for name in names]
        puts = [
            store.put(f"/pods/default/{name}", draft, expected=0) for name, draft in zip(names, drafts, strict=True)
        ]
        records = await asyncio.gather(*puts)
        await asyncio.gather(
            *(store.delete(record.key, Draft(record.object()), expected=record.rev) for record in records)
        )


async def compact(store: Store) -> tuple[int, float]:
    """Compact everything; returns the number of removed rows and the longest step in seconds of CPU time."""
    removed, longest = 0, 0.0
    steps = store.compaction(keep_seconds=0, keep_revisions=0)
    while True:
        start = time.thread_time()
        count = next(steps, None)
        longest = max(longest, time.thread_time() - start)
        if count is None:
            return removed, longest
        removed += count
        await asyncio.sleep(0)


async def checkpointed_size(store: Store, path: Path) -> int:
    """The size of the file after the write-ahead log was moved into it."""
    await store.close()
    return path.stat().st_size


async def test_the_file_shrinks_and_memory_stays_flat(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(path)
    store.CHECKPOINT_BYTES = 1 << 20  # so that the file itself grows in a short test
    await create_and_delete(store, OBJECTS)
    await compact(store)
    gc.collect()
    memory = resident_bytes()
    await create_and_delete(store, OBJECTS)
    largest = path.stat().st_size
    removed, longest = await compact(store)
    gc.collect()
    growth = resident_bytes() - memory
    assert removed == 2 * OBJECTS
    assert longest < MAX_STEP_SECONDS
    assert growth < 32 << 20
    assert await checkpointed_size(store, path) < min(largest / 2, 8 << 20)


async def test_an_interrupted_compaction_is_completed_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(path)
    await create_and_delete(store, 1_000)
    steps = store.compaction(keep_seconds=0, keep_revisions=0)
    first = next(steps)
    await store.close()
    again = Store(path)
    assert again.compacted == again.revision == 2_000
    removed, _ = await compact(again)
    assert 0 < first < 2_000
    assert first + removed == 2_000
    record = await again.put("/pods/default/x", Draft({"metadata": {"name": "x"}}), expected=0)
    assert record.rev == 2_001
    await again.close()


async def test_a_watch_from_an_old_revision_reads_its_history_in_steps(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await create_and_delete(store, 1_000)
    watcher = store.watch("/pods/", since=0, matches=None, encoder=lambda change, record: (change, record.rev))
    await store.put("/pods/default/last", Draft({"metadata": {"name": "last"}}), expected=0)
    deliveries: list[list[Any]] = []
    while sum(map(len, deliveries)) < 2_001:
        events = await watcher.take(1)
        assert events is not None
        deliveries.append(events)
    assert [revision for events in deliveries for _, revision in events] == list(range(1, 2_002))
    assert max(map(len, deliveries)) < 500
    await store.close()


async def test_a_watch_whose_history_is_compacted_meanwhile_ends(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await create_and_delete(store, 500)
    watcher = store.watch("/pods/", since=0, matches=None, encoder=lambda change, record: (change, record.rev))
    assert await watcher.take(1)
    store.compact(keep_seconds=0, keep_revisions=0)
    async with asyncio.timeout(30):
        while await watcher.take(1) is not None:
            pass
    assert watcher.overrun
    await store.close()
