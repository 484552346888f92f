"""The store: compare and swap, history, watches, snapshots, compaction, restarts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from torchyard.api.errors import StatusError
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import Compacted, RevisionConflict
from torchyard.apiserver.store.log import Fsync
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import Change, Watcher


def an_object(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"n": 0}}


def encode(change: Change, record: Record) -> bytes:
    return f"{change} {record.key} {record.rev}".encode()


async def seen(watcher: Watcher) -> list[str]:
    return [event.decode() for event in await watcher.take(0.01) or []]


@pytest.fixture(params=["normal", "full"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    fsync: Fsync = request.param
    store = Store(tmp_path / "store.db", fsync=fsync)
    yield store
    await store.close()


async def test_a_write_gets_the_next_revision_and_carries_it_in_its_bytes(store: Store) -> None:
    first = await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    second = await store.put("/pods/a/y", Draft(an_object("y")), expected=0)
    assert (first.rev, second.rev) == (1, 2)
    assert orjson.loads(second.data)["metadata"]["resourceVersion"] == "2"
    assert store.get("/pods/a/x") is first


@pytest.mark.parametrize("expected", [0, 7])
async def test_a_write_against_another_revision_conflicts_and_changes_nothing(store: Store, expected: int) -> None:
    record = await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    with pytest.raises(RevisionConflict) as caught:
        await store.put("/pods/a/x", Draft(an_object("x")), expected=expected)
    assert caught.value.current is record
    assert store.revision == record.rev


async def test_of_writes_that_arrive_together_exactly_one_wins(store: Store) -> None:
    writes = [store.put("/pods/a/x", Draft(an_object("x", n=str(n))), expected=0) for n in range(20)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result).__name__ for result in results].count("Record") == 1
    assert [type(result).__name__ for result in results].count("RevisionConflict") == 19


@pytest.mark.parametrize(
    ("watchers", "delivered", "milliseconds"),
    [(1, 1, 0.5), (2, 1, 1), (2, 3, 3), (2, 100, 20), (20, 1, 10), (500, 9, 20)],
)
async def test_a_watcher_pauses_longer_with_more_events_and_more_watchers(
    store: Store, watchers: int, delivered: int, milliseconds: float
) -> None:
    last = [store.watch("/pods/", since=None, matches=None, encoder=encode) for _ in range(watchers)][-1]
    assert store.batch_pause(last, delivered) * 1000 == pytest.approx(milliseconds)


async def test_a_watch_replays_missed_changes_and_continues_live(store: Store) -> None:
    first = await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    await store.put("/pods/a/x", Draft(an_object("x", role="worker")), expected=first.rev)
    await store.put("/jobs.batch/a/j", Draft(an_object("j")), expected=0)
    watcher = store.watch("/pods/", since=1, matches=None, encoder=encode)
    await store.delete("/pods/a/x", Draft(an_object("x")), expected=2)
    assert await seen(watcher) == ["MODIFIED /pods/a/x 2", "DELETED /pods/a/x 4"]
    store.unwatch(watcher)
    assert await watcher.take(1) is None


async def test_a_selector_watch_sees_an_object_come_and_go(store: Store) -> None:
    watcher = store.watch("/pods/", since=None, matches=lambda record: record.labels.get("on") == "yes", encoder=encode)
    await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    await store.put("/pods/a/x", Draft(an_object("x", on="yes")), expected=1)
    await store.put("/pods/a/x", Draft(an_object("x", on="yes", more="1")), expected=2)
    await store.put("/pods/a/x", Draft(an_object("x")), expected=3)
    await store.delete("/pods/a/x", Draft(an_object("x")), expected=4)
    assert await seen(watcher) == ["ADDED /pods/a/x 2", "MODIFIED /pods/a/x 3", "DELETED /pods/a/x 4"]


async def test_the_same_selector_watch_replayed_from_history_sees_the_same(store: Store) -> None:
    await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    await store.put("/pods/a/x", Draft(an_object("x", on="yes")), expected=1)
    await store.put("/pods/a/x", Draft(an_object("x")), expected=2)
    watcher = store.watch("/pods/", since=1, matches=lambda record: record.labels.get("on") == "yes", encoder=encode)
    assert await seen(watcher) == ["ADDED /pods/a/x 2", "DELETED /pods/a/x 3"]


async def test_a_watcher_that_never_reads_is_ended_and_the_others_continue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watcher, "MAX_EVENTS", 10)
    stuck = store.watch("/pods/", since=None, matches=None, encoder=encode)
    reader = store.watch("/pods/", since=None, matches=None, encoder=encode)
    read = 0
    for n in range(30):
        await store.put(f"/pods/a/{n}", Draft(an_object(str(n))), expected=0)
        read += len(await seen(reader))
    assert read == 30
    assert stuck.overrun
    assert await stuck.take(1) is None


async def test_a_snapshot_shows_the_past_while_it_is_kept(store: Store) -> None:
    for name in "abc":
        await store.put(f"/pods/n/{name}", Draft(an_object(name)), expected=0)
    await store.delete("/pods/n/b", Draft(an_object("b")), expected=2)
    await store.put("/pods/n/a", Draft(an_object("a", new="1")), expected=1)
    then = [(record.key, record.rev) for record in store.snapshot(3, "/pods/n/")]
    assert then == [("/pods/n/a", 1), ("/pods/n/b", 2), ("/pods/n/c", 3)]
    assert [record.key for record in store.snapshot(3, "/pods/n/", after="/pods/n/a", limit=1)] == ["/pods/n/b"]
    assert [record.key for record in store.snapshot(5, "/pods/n/")] == ["/pods/n/a", "/pods/n/c"]


async def test_a_snapshot_of_every_revision_is_as_it_was(store: Store) -> None:
    draw, now = Random(7), dict[str, int]()
    past: list[dict[str, int]] = [{}]
    for number in range(1, 201):
        key = f"/{draw.choice(['pods', 'jobs'])}/n/{draw.randrange(12)}"
        if key in now and draw.random() < 0.4:
            await store.delete(key, Draft(an_object("x")), expected=now.pop(key))
        else:
            await store.put(key, Draft(an_object("x")), expected=now.get(key, 0))
            now[key] = number
        past.append(dict(now))
    for revision, was in enumerate(past):
        after = f"/pods/n/{draw.randrange(12)}"
        expected = sorted((key, rev) for key, rev in was.items() if key.startswith("/pods/"))
        assert [(record.key, record.rev) for record in store.snapshot(revision, "/pods/")] == expected
        rest = [record.key for record in store.snapshot(revision, "/pods/", after=after)]
        assert rest == [key for key, _ in expected if key > after]


async def test_compacted_history_raises(store: Store) -> None:
    for n in range(5):
        await store.put("/pods/n/a", Draft(an_object("a", n=str(n))), expected=n)
    assert store.compact(keep_revisions=1) == 3
    with pytest.raises(Compacted, match=r"too old resource version: 2 \(4\)"):
        store.watch("/pods/", since=2, matches=None, encoder=encode)
    with pytest.raises(Compacted):
        list(store.snapshot(2, "/pods/"))
    watcher = store.watch("/pods/", since=4, matches=None, encoder=encode)
    assert await seen(watcher) == ["MODIFIED /pods/n/a 5"]


async def test_everything_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await asyncio.gather(*(store.put(f"/pods/a/{n:03}", Draft(an_object(str(n))), expected=0) for n in range(100)))
    await store.delete("/pods/a/050", Draft(an_object("50")), expected=51)
    await store.close()
    again = Store(tmp_path / "store.db")
    assert again.revision == 101
    assert len(again.collection("/pods/")) == 99
    watcher = again.watch("/pods/", since=99, matches=None, encoder=encode)
    assert await seen(watcher) == ["ADDED /pods/a/099 100", "DELETED /pods/a/050 101"]
    await again.close()


async def test_a_deletion_just_before_a_restart_is_not_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    await store.put("/pods/a/y", Draft(an_object("y")), expected=0)
    await store.put("/jobs.batch/a/only", Draft(an_object("only")), expected=0)
    await store.delete("/pods/a/x", Draft(an_object("x")), expected=1)
    await store.delete("/jobs.batch/a/only", Draft(an_object("only")), expected=3)
    await store.close()
    again = Store(tmp_path / "store.db")
    pods = again.watch("/pods/", since=2, matches=None, encoder=encode)
    jobs = again.watch("/jobs.batch/", since=3, matches=None, encoder=encode)
    assert await seen(pods) == ["DELETED /pods/a/x 4"]
    assert await seen(jobs) == ["DELETED /jobs.batch/a/only 5"]
    assert [record.key for record in again.snapshot(3, "/pods/")] == ["/pods/a/x", "/pods/a/y"]
    assert [record.key for record in again.snapshot(4, "/jobs.batch/")] == ["/jobs.batch/a/only"]
    await again.close()


async def test_a_revision_is_never_used_twice_even_after_everything_was_compacted(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    await store.delete("/pods/a/x", Draft(an_object("x")), expected=1)
    store.compact(keep_revisions=0)
    await store.close()
    again = Store(tmp_path / "store.db")
    assert (await again.put("/pods/a/x", Draft(an_object("x")), expected=0)).rev == 3
    await again.close()


async def test_the_cache_lists_in_key_order_within_a_namespace(store: Store) -> None:
    for key in ("b/x", "a/z", "a-b/y", "a/b"):
        await store.put(f"/pods/{key}", Draft(an_object("x")), expected=0)
    assert [record.key for record in store.collection("/pods/").all()] == [
        "/pods/a-b/y",
        "/pods/a/b",
        "/pods/a/z",
        "/pods/b/x",
    ]
    assert [record.key for record in store.collection("/pods/").below("/pods/a/")] == ["/pods/a/b", "/pods/a/z"]


async def test_the_write_ahead_log_of_single_writes_stays_within_its_limit(store: Store, tmp_path: Path) -> None:
    """Each of them writes several pages, whatever the size of the object."""
    store.CHECKPOINT_BYTES = 1 << 20
    write_ahead = tmp_path / "store.db-wal"
    largest = 0
    for number in range(1500):
        await store.put(f"/pods/a/{number}", Draft(an_object("x")), expected=0)
        largest = max(largest, write_ahead.stat().st_size)
        while store._checkpointer.is_running:  # it takes its time on a busy machine
            await asyncio.sleep(0.001)
    assert largest < 3 << 20


async def test_the_log_of_a_process_that_was_killed_is_moved_into_the_database(tmp_path: Path) -> None:
    """However often it is killed before it has written much."""
    path, write_ahead = tmp_path / "store.db", tmp_path / "store.db-wal"
    killed = Store(path)
    for number in range(500):
        await killed.put(f"/pods/a/{number}", Draft(an_object("x")), expected=0)
    assert write_ahead.stat().st_size > 1 << 20
    before = path.stat().st_size
    again = Store(path)
    again.CHECKPOINT_BYTES = 1 << 20
    await again.put("/pods/a/last", Draft(an_object("x")), expected=0)
    async with asyncio.timeout(60):
        while path.stat().st_size == before:
            await asyncio.sleep(0.01)
    await again.close()
    killed._log.close()


async def test_the_write_ahead_log_is_reused_under_continuous_writes(store: Store, tmp_path: Path) -> None:
    store.CHECKPOINT_BYTES = 1 << 16
    write_ahead = tmp_path / "store.db-wal"
    large = {"blob": "x" * 2000}
    written = 0

    def is_used_again() -> bool:
        return written * 2000 > 3 * write_ahead.stat().st_size

    # How soon the log is reused depends on the checkpoint thread and on the disk, which other processes may keep busy.
    # After many writes each writer slows down, so that the wait does not fill the disk.
    async def write(writer: int) -> None:
        nonlocal written
        for number in count():
            await store.put(f"/pods/a/{writer}-{number}", Draft(an_object("x") | large), expected=0)
            written += 1
            if is_used_again():
                return
            await asyncio.sleep(0 if number < 1000 else 0.01)

    try:
        async with asyncio.timeout(200):
            await asyncio.gather(*(write(writer) for writer in range(8)))
    except TimeoutError:
        pytest.fail("the file grows with everything that is written")
    assert len(store.collection("/pods/")) == written


async def test_an_object_that_cannot_be_encoded_fails_alone(store: Store) -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}
    writes = [
        store.put("/pods/a/x", Draft(an_object("x")), expected=0),
        store.put("/pods/a/deep", Draft({"metadata": {"name": "deep"}, "spec": deep}), expected=0),
        store.put("/pods/a/none", Draft({"metadata": None}), expected=0),
        store.put("/pods/a/y", Draft(an_object("y")), expected=0),
    ]
    async with asyncio.timeout(10):
        results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, Exception) for result in results] == [False, True, True, False]


async def test_a_full_disk_is_named_until_there_is_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await store.put("/pods/a/x", Draft(an_object("x")), expected=0)
    pages = store._log._db.execute("PRAGMA page_count").fetchone()[0]
    store._log._db.execute(f"PRAGMA max_page_count = {pages}")  # as SQLite reports ENOSPC
    large = {**an_object("y"), "data": "z" * 100_000}
    with pytest.raises(StatusError, match="disk of the state directory is full: free some space") as caught:
        await store.put("/pods/a/y", Draft(large), expected=0)
    assert (caught.value.status, caught.value.reason) == (500, "InternalError")
    assert store.get("/pods/a/x") is not None
    store._log._db.execute("PRAGMA max_page_count = 1000000")
    await store.put("/pods/a/y", Draft(large), expected=0)
    assert await store.write_error() == ""
    await store.close()


@pytest.mark.parametrize("fsync", ["normal", "full"])
async def test_writes_do_not_wait_for_the_threads_of_other_parts(
    fsync: Fsync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those that look at a directory of a file server that does not answer."""
    loop, released = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as busy:
        loop.set_default_executor(busy)
        loop.run_in_executor(None, released.wait)
        monkeypatch.setattr(Store, "CHECKPOINT_BYTES", 1)  # every write asks for a checkpoint
        store = Store(tmp_path / "store.db", fsync=fsync)
        try:
            async with asyncio.timeout(60):
                for number in range(20):
                    await store.put(f"/pods/default/p{number}", Draft(an_object(f"p{number}")), expected=0)
                await store.close()
        finally:
            released.set()
