"""The one place where objects change: compare and swap, commit, then tell the watchers.

Writes that arrive together are committed together. A write is acknowledged after its transaction; readers and
watchers see it only then, so nothing that anybody saw can be lost. The store belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from torchyard.api.errors import StatusError, YardError
from torchyard.apiserver.store.cache import Collection, Record, collection_of
from torchyard.apiserver.store.log import Fsync, Log, Row
from torchyard.apiserver.store.watch import Encoder, Filter, StoreEvent, Watcher

log = logging.getLogger(__name__)

_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds, for each change told and each watcher of a collection, and in all


class RevisionConflict(YardError):
    """The object is not at the expected revision; `current` is what it is now."""

    code = "RevisionConflict"

    def __init__(self, key: str, current: Record | None) -> None:
        super().__init__(f"{key} has changed")
        self.current = current


class Compacted(YardError):
    """The history asked for is no longer there."""

    code = "Compacted"

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class _Write(NamedTuple):
    key: str
    obj: dict[str, Any]
    expected: int
    delete: bool
    is_own: bool
    done: asyncio.Future[Record]


class _Prepared(NamedTuple):
    write: _Write
    row: Row
    record: Record
    previous: Record | None


class Store:
    """All objects of one plane. `expected` is the revision a write replaces: 0 for an object that must be new."""

    KEEP_SECONDS = 300.0
    KEEP_REVISIONS = 200_000
    CHECKPOINT_BYTES = 4 << 20

    def __init__(self, path: Path, *, fsync: Fsync = "normal", clock: Callable[[], float] = time.monotonic) -> None:
        self._log = Log(path, fsync=fsync)
        self._durable = fsync == "full"
        self._clock = clock
        self._collections: dict[str, Collection] = {}
        self._watchers: dict[str, set[Watcher]] = {}
        self._listeners: dict[str, list[Callable[[StoreEvent], None]]] = {}
        self._pending: list[_Write] = []
        self._flusher: asyncio.Task[None] | None = None
        self._scheduled = False
        self._unsynced = 0
        self._checkpoint: asyncio.Future[None] | None = None
        self._is_rewind_due = False  # all but the newest changes are in the database: the log can begin anew
        self._closed = False
        self.revision = self._log.last_revision()
        # What is there does not tell when the last object of a collection was deleted: only the log does.
        self._loaded = self.revision
        self.compacted = self._log.compacted()
        self._marks: deque[tuple[float, int]] = deque([(clock(), self.revision)])
        self._load()

    def _load(self) -> None:
        found: dict[str, list[Record]] = {}
        for row in self._log.current():
            found.setdefault(collection_of(row.key), []).append(Record(row.key, row.rev, row.value))
        for prefix, records in found.items():
            self.collection(prefix).load(records)

    # Reading

    def collection(self, prefix: str) -> Collection:
        """The collection such as `/pods/`; empty if there is nothing in it."""
        collection = self._collections.get(prefix)
        if collection is None:
            collection = self._collections[prefix] = Collection(prefix, self._loaded)
        return collection

    def get(self, key: str) -> Record | None:
        collection = self._collections.get(collection_of(key))
        return collection.get(key) if collection else None

    def collections(self) -> list[Collection]:
        return [collection for collection in self._collections.values() if len(collection)]

    def snapshot(self, rev: int, prefix: str, *, after: str = "", limit: int = -1) -> Iterator[Record]:
        """The objects below `prefix` as they were at `rev`. Raises `Compacted` when that is forgotten."""
        collection = self.collection(collection_of(prefix))
        if rev == self.revision or (collection.rev <= rev <= self.revision):
            for count, record in enumerate(collection.below(prefix, after=after)):
                if count == limit:
                    return
                yield record
            return
        if rev < self.compacted:
            raise Compacted(rev, self.compacted)
        yield from islice(self._as_of(rev, prefix, after), limit if limit >= 0 else None)

    def _as_of(self, rev: int, prefix: str, after: str) -> Iterator[Record]:
        """What has not changed since is in memory: only the rest costs a look into the log."""
        collection = self.collection(collection_of(prefix))
        there = (record.key for record in collection.below(prefix, after=after))
        gone = (key for key in self._log.deleted_after(rev, prefix) if key > after and collection.get(key) is None)
        for key in merge(there, gone):
            record = collection.get(key)
            if record is not None and record.rev <= rev:
                yield record
            elif (row := self._log.at(rev, key)) is not None:
                yield Record(row.key, row.rev, row.value)

    # Writing

    def put(self, key: str, obj: dict[str, Any], *, expected: int, is_own: bool = False) -> asyncio.Future[Record]:
        """Write an object. Awaiting gives the new record, or raises `Stale`. The store takes the object over.

        `is_own`: no part of it is a part of anything else, so that who watches here may have it to keep.
        """
        return self._submit(key, obj, expected, delete=False, is_own=is_own)

    def delete(self, key: str, obj: dict[str, Any], *, expected: int) -> asyncio.Future[Record]:
        """Remove an object; `obj` is its last state, as watchers shall see it."""
        return self._submit(key, obj, expected, delete=True)

    def _submit(
        self, key: str, obj: dict[str, Any], expected: int, *, delete: bool, is_own: bool = False
    ) -> asyncio.Future[Record]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Record] = loop.create_future()
        if self._closed:
            done.set_exception(StatusError(503, "ServiceUnavailable", "the server is shutting down"))
            return done
        self._pending.append(_Write(key, obj, expected, delete, is_own, done))
        if not self._scheduled and self._flusher is None:
            self._scheduled = True
            loop.call_soon(self._flush)
        return done

    def _flush(self) -> None:
        """Commit everything that is waiting. Where the disk is waited for, that happens in a thread."""
        self._scheduled = False
        writes, self._pending = self._pending, []
        if not writes:
            return
        prepared = self._prepare(writes)
        if not prepared:
            return
        in_thread = self._durable or self._is_rewind_due
        try:
            self._log.begin(one.row for one in prepared)
            if not in_thread:
                self._log.commit()
        except Exception as error:  # the disk is full, or gone: every writer of the batch is told
            self._fail(prepared, error)
            return
        if in_thread:
            self._flusher = asyncio.get_running_loop().create_task(self._commit_in_thread(prepared))
        else:
            self._publish(prepared)

    async def _commit_in_thread(self, prepared: list[_Prepared]) -> None:
        """Wait for the disk in a thread, but for nothing else: each call of SQLite there queues for the interpreter."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._log.commit)
        except Exception as error:
            self._fail(prepared, error)
        else:
            self._publish(prepared)
            if self._is_rewind_due:
                await self._rewind()
        finally:
            self._flusher = None
            if self._pending:
                self._flush()

    async def _rewind(self) -> None:
        """Use the write-ahead log's place again. While this goes on nobody writes, and what is committed is told."""
        try:
            done = await asyncio.get_running_loop().run_in_executor(None, self._log.rewind)
        except Exception as error:
            log.warning("the store's log could not be begun anew, will be tried again: %s", error)
        else:
            self._is_rewind_due = not done

    def _prepare(self, writes: list[_Write]) -> list[_Prepared]:
        """Compare each write with what it replaces, in order of arrival, and give it its revision."""
        prepared: list[_Prepared] = []
        ahead: dict[str, Record | None] = {}
        revision = self.revision
        for write in writes:
            if write.done.cancelled():
                continue
            current = ahead[write.key] if write.key in ahead else self.get(write.key)
            if (current.rev if current else 0) != write.expected:
                write.done.set_exception(RevisionConflict(write.key, current))
                continue
            try:
                metadata = write.obj["metadata"]
                metadata["resourceVersion"] = str(revision + 1)
                # A copy: orjson's own bytes keep the buffer they grew in, two or three times their length.
                data = bytes(memoryview(orjson.dumps(write.obj)))
            except (TypeError, KeyError) as error:
                write.done.set_exception(error)
                continue
            revision += 1
            record = Record(
                write.key, revision, data, metadata.get("labels") or {}, spare=write.obj if write.is_own else None
            )
            row = Row(revision, write.key, write.expected, write.delete, data)
            prepared.append(_Prepared(write, row, record, current))
            ahead[write.key] = None if write.delete else record
        return prepared

    def _publish(self, prepared: list[_Prepared]) -> None:
        for write, row, record, previous in prepared:
            self.revision = row.rev
            prefix = collection_of(write.key)
            collection = self.collection(prefix)
            if write.delete:
                collection.remove(write.key, row.rev)
                event = StoreEvent("DELETED", record, previous)
            else:
                collection.put(record)
                event = StoreEvent("MODIFIED" if previous else "ADDED", record, previous)
            for listener in (*self._listeners.get(prefix, ()), *self._listeners.get("", ())):
                listener(event)
            for watcher in self._watchers.get(prefix, ()):
                watcher.offer(event)
            record.drop_spare()
            if not write.done.done():
                write.done.set_result(record)
            self._unsynced += len(row.value)
        if self._unsynced > self.CHECKPOINT_BYTES and self._checkpoint is None:
            self._unsynced = 0
            self._checkpoint = asyncio.get_running_loop().run_in_executor(None, self._log.checkpoint)
            self._checkpoint.add_done_callback(self._checkpointed)

    def _checkpointed(self, finished: asyncio.Future[None]) -> None:
        self._checkpoint = None
        if finished.cancelled():
            return
        if (error := finished.exception()) is not None:
            log.warning("checkpoint of the store failed, will be tried again: %s", error)
        else:
            self._is_rewind_due = True

    def _fail(self, prepared: list[_Prepared], error: Exception) -> None:
        log.error("the store could not write %d change(s): %s", len(prepared), error)
        for one in prepared:
            if not one.write.done.done():
                one.write.done.set_exception(
                    StatusError(500, "StorageReadError", f"the store could not write: {error}")
                )

    # Watching

    def watch(
        self,
        prefix: str,
        *,
        since: int | None,
        matches: Filter | None,
        encoder: Encoder,
        first: Encoder | None = None,
    ) -> Watcher:
        """Subscribe to the changes below `prefix`. `since` replays what happened after that revision."""
        watcher = Watcher(prefix, matches, encoder, first)
        if since is not None and since < self.revision:
            if since < self.compacted:
                raise Compacted(since, self.compacted)
            for event in self._history(since, prefix):
                watcher.offer(event)
        self._watchers.setdefault(collection_of(prefix), set()).add(watcher)
        return watcher

    def listen(self, prefix: str, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` with every change of a collection, beginning with what is there, before anybody sees it.

        The prefix "" stands for all collections.
        """
        for collection in [self.collection(prefix)] if prefix else self.collections():
            for record in collection.all():
                listener(StoreEvent("ADDED", record, None))
        self._listeners.setdefault(prefix, []).append(listener)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.get(collection_of(watcher.prefix), set()).discard(watcher)
        watcher.end()

    def pause_of(self, watcher: Watcher, told: int) -> float:
        """How long a watcher that was just told so many changes does well to wait: the more listen, the more at once.

        To tell somebody something costs about the same for one change as for twenty. And where many come at a time,
        many more are on their way.
        """
        listening = len(self._watchers.get(collection_of(watcher.prefix), ()))
        return min(listening * told * _PAUSE, _LONGEST_PAUSE)

    def watchers(self) -> int:
        return sum(len(one) for one in self._watchers.values())

    def _history(self, since: int, prefix: str) -> Iterator[StoreEvent]:
        if self.collection(collection_of(prefix)).rev <= since:
            return
        for row in self._log.between(since, self.revision, prefix):
            before = self._log.row(row.prev) if row.prev else None
            previous = Record(before.key, before.rev, before.value) if before else None
            record = Record(row.key, row.rev, row.value)
            yield StoreEvent("DELETED" if row.deleted else "MODIFIED" if row.prev else "ADDED", record, previous)

    # Upkeep

    def compact(self, *, keep_seconds: float | None = None, keep_revisions: int | None = None) -> int:
        """Forget history older than the window. Called now and then by the server; answers how many rows went."""
        now = self._clock()
        self._marks.append((now, self.revision))
        horizon = now - (self.KEEP_SECONDS if keep_seconds is None else keep_seconds)
        target = self.revision - (self.KEEP_REVISIONS if keep_revisions is None else keep_revisions)
        while self._marks and self._marks[0][0] <= horizon:
            target = max(target, self._marks.popleft()[1])
        if target <= self.compacted or self._flusher is not None:
            return 0
        gone = self._log.compact(target)
        self.compacted = target
        return gone

    async def close(self) -> None:
        """Commit what is waiting, end every watch, close the file."""
        self._closed = True
        while self._pending or self._flusher is not None:
            if self._flusher is not None:
                await self._flusher
            else:
                self._flush()
        for watchers in list(self._watchers.values()):
            for watcher in list(watchers):
                watcher.end()
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
        self._log.close()
