"""The one place where objects change: compare and swap, commit, publish to the watchers.

Writes that arrive in the same iteration of the event loop are committed in one transaction. A write is acknowledged
after its transaction, and readers and watchers see it only then, so a crash cannot take back what a client saw. The
store belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from torchyard.api.errors import StatusError
from torchyard.apiserver.store.cache import Collection, Record, collection_of
from torchyard.apiserver.store.checkpointer import Checkpointer
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import Compacted, RevisionConflict
from torchyard.apiserver.store.log import Fsync, Log, Row, describe_write_error, is_locked
from torchyard.apiserver.store.watch import Encoder, Filter, History, StoreEvent, Watcher

logger = logging.getLogger(__name__)

# Seconds that a watcher pauses for each delivered event and each watcher of its collection, and at most.
_BATCH_PAUSE, _MAX_BATCH_PAUSE = 0.0005, 0.02
# A write in the last seconds shows that writes succeed; how long a write that finds out may take.
_PROBE_SECONDS, _PROBE_TIMEOUT = 5.0, 3.0


# So many revisions of the history are read at once.
_HISTORY_STEP = 200
# About what a step of a compaction adds to the write-ahead log.
_COMPACTION_STEP_BYTES = 1 << 20


class _Write(NamedTuple):
    key: str
    draft: Draft
    expected: int
    delete: bool
    done: asyncio.Future[Record]


class _PreparedWrite(NamedTuple):
    write: _Write
    row: Row
    record: Record
    previous: Record | None


class Store:
    """All objects of one plane. `expected` is the revision that a write replaces: 0 for an object that must be new."""

    KEEP_SECONDS = 300.0
    KEEP_REVISIONS = 200_000
    CHECKPOINT_BYTES = 16 << 20  # of the write-ahead log

    def __init__(
        self,
        path: Path,
        *,
        fsync: Fsync = "normal",
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        """`on_failure` is called when the store cannot go on; a write that fails is only reported to its writer."""
        self._on_failure = on_failure
        self._log = Log(path, fsync=fsync)
        # Its own threads, for a commit and a checkpoint: in the event loop's, a hung mount would stop all writes.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="store")
        self._checkpointer = Checkpointer(self._log, self._threads)
        self._waits_for_disk = fsync == "full"
        self._clock = clock
        self._collections: dict[str, Collection] = {}
        self._watchers: dict[str, set[Watcher]] = {}
        self._listeners: dict[str, list[Callable[[StoreEvent], None]]] = {}
        self._pending: list[_Write] = []
        self._commit_task: asyncio.Task[None] | None = None
        self._is_flush_scheduled = False
        self._is_closed = False
        self._error = ""  # of the last write
        self._written_at = float("-inf")
        self._probe: asyncio.Task[None] | None = None
        self.revision = self._log.last_revision()
        # The objects do not show when the last one of a collection was deleted; only the log does. So a collection
        # counts as changed at the revision that was loaded.
        self._loaded_revision = self.revision
        self.compacted = self._log.compacted()
        self._revision_times: deque[tuple[float, int]] = deque([(clock(), self.revision)])
        self._load()

    def _load(self) -> None:
        by_collection: dict[str, list[Record]] = {}
        for rev, key, value in self._log.current():
            by_collection.setdefault(collection_of(key), []).append(Record(key, rev, value))
        for prefix, records in by_collection.items():
            self.collection(prefix).load(records)

    # Reading

    def collection(self, prefix: str) -> Collection:
        """A collection such as `/pods/`; empty if it holds no objects."""
        collection = self._collections.get(prefix)
        if collection is None:
            collection = self._collections[prefix] = Collection(prefix, self._loaded_revision)
        return collection

    def get(self, key: str) -> Record | None:
        collection = self._collections.get(collection_of(key))
        return collection.get(key) if collection else None

    def collections(self) -> list[Collection]:
        return [collection for collection in self._collections.values() if len(collection)]

    def snapshot(self, rev: int, prefix: str, *, after: str = "", limit: int = -1) -> Iterator[Record]:
        """The objects below `prefix` as of revision `rev`. Raises `Compacted` if that history is gone."""
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
        """What has not changed since `rev` is in memory; only the rest is read from the log."""
        collection = self.collection(collection_of(prefix))
        present = (record.key for record in collection.below(prefix, after=after))
        deleted = (key for key in self._log.deleted_after(rev, prefix) if key > after and collection.get(key) is None)
        for key in merge(present, deleted):
            record = collection.get(key)
            if record is not None and record.rev <= rev:
                yield record
            elif (row := self._log.at(rev, key)) is not None:
                yield Record(row.key, row.rev, row.value)

    # Writing

    def put(self, key: str, draft: Draft, *, expected: int) -> asyncio.Future[Record]:
        """Write an object and own its draft. Awaiting returns the new record, or raises `RevisionConflict`."""
        return self._submit(key, draft, expected, delete=False)

    def delete(self, key: str, draft: Draft, *, expected: int) -> asyncio.Future[Record]:
        """Remove an object; `draft` is its last state, as watchers see it."""
        return self._submit(key, draft, expected, delete=True)

    def _submit(self, key: str, draft: Draft, expected: int, *, delete: bool) -> asyncio.Future[Record]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Record] = loop.create_future()
        if self._is_closed:
            done.set_exception(StatusError(503, "ServiceUnavailable", "the server is shutting down"))
            return done
        self._pending.append(_Write(key, draft, expected, delete, done))
        if not self._is_flush_scheduled and self._commit_task is None:
            self._is_flush_scheduled = True
            loop.call_soon(self._flush)
        return done

    def _flush(self) -> None:
        """Commit all pending writes. A commit that waits for the disk runs in a thread."""
        self._is_flush_scheduled = False
        if self._commit_task is not None:  # it flushes what is pending when it ends
            return
        writes, self._pending = self._pending, []
        if not writes:
            return
        prepared = self._prepare(writes)
        if not prepared:
            return
        in_thread = self._waits_for_disk or self._checkpointer.is_restart_due
        try:
            self._log.begin(write.row for write in prepared)
            if not in_thread:
                self._log.commit()
        except Exception as error:
            if is_locked(error):
                self._commit_task = asyncio.get_running_loop().create_task(self._append_locked(prepared))
            else:  # such as a full disk: every write of the batch fails
                self._fail(prepared, error)
            return
        if in_thread:
            self._commit_task = asyncio.get_running_loop().create_task(self._commit_in_thread(prepared))
        else:
            self._publish_or_fail(prepared)

    def _publish_or_fail(self, prepared: list[_PreparedWrite]) -> None:
        """Publish committed writes. An error here leaves the memory behind the disk: the store cannot go on."""
        try:
            self._publish(prepared)
        except Exception as error:
            logger.exception("store failed: committed changes could not be published")
            self._fail(prepared, error)
            self._on_failure(error)

    async def _commit_in_thread(self, prepared: list[_PreparedWrite]) -> None:
        """Only the wait for the disk happens in a thread: every other SQLite call there would contend for the GIL."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._log.commit)
        except Exception as error:
            self._fail(prepared, error)
        else:
            self._publish_or_fail(prepared)
            if self._checkpointer.is_restart_due:
                await self._checkpointer.restart_log()
        finally:
            self._commit_task = None
            if self._pending:
                self._flush()

    async def _append_locked(self, prepared: list[_PreparedWrite]) -> None:
        """Another program has locked the database: a thread waits for it, and the event loop goes on."""
        rows = [write.row for write in prepared]
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._log.append_locked, rows)
        except Exception as error:
            self._fail(prepared, error)
        else:
            self._publish_or_fail(prepared)
        finally:
            self._commit_task = None
            if self._pending:
                self._flush()

    async def write_error(self) -> str:
        """Why objects cannot be written, or nothing; writes to find out, unless something was written just now."""
        if not self._error and self._clock() - self._written_at < _PROBE_SECONDS:
            return ""
        if self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._probe_write())
        await asyncio.wait([self._probe], timeout=_PROBE_TIMEOUT)
        return self._error if self._probe is None else "timed out"

    async def _probe_write(self) -> None:
        while self._commit_task is not None:
            await asyncio.wait([self._commit_task])
        if self._is_closed:
            return
        self._commit_task = asyncio.get_running_loop().create_task(self._touch())
        await asyncio.wait([self._commit_task])
        self._probe = None

    async def _touch(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._log.touch)
        except Exception as error:
            self._error = describe_write_error(error)
        else:
            self._written()
        finally:
            self._commit_task = None
            if self._pending:
                self._flush()

    def _written(self) -> None:
        self._error = ""
        self._written_at = self._clock()

    def _prepare(self, writes: list[_Write]) -> list[_PreparedWrite]:
        """Compare each write with what it replaces, in order of arrival, and assign its revision."""
        prepared: list[_PreparedWrite] = []
        uncommitted: dict[str, Record | None] = {}
        revision = self.revision
        for write in writes:
            if write.done.cancelled():
                continue
            current = uncommitted[write.key] if write.key in uncommitted else self.get(write.key)
            if (current.rev if current else 0) != write.expected:
                write.done.set_exception(RevisionConflict(write.key, current))
                continue
            try:
                obj = write.draft.obj
                metadata = obj["metadata"]
                metadata["resourceVersion"] = str(revision + 1)
                # A copy: the bytes that orjson returns keep the buffer they grew in, two or three times their length.
                data = bytes(memoryview(orjson.dumps(obj)))
            except Exception as error:  # what cannot be encoded must not keep the other writes of the batch waiting
                write.done.set_exception(error)
                continue
            revision += 1
            record = Record(write.key, revision, data, metadata.get("labels") or {}, write.draft)
            row = Row(revision, write.key, write.expected, write.delete, data)
            prepared.append(_PreparedWrite(write, row, record, current))
            uncommitted[write.key] = None if write.delete else record
        return prepared

    def _publish(self, prepared: list[_PreparedWrite]) -> None:
        size = 0
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
                try:
                    listener(event)
                except Exception:  # the write is committed: a listener must not keep it from the others
                    logger.exception("store listener failed: key=%s revision=%d", write.key, row.rev)
            for watcher in self._watchers.get(prefix, ()):
                watcher.offer(event)
            record.end_publication()
            if not write.done.done():
                write.done.set_result(record)
            size += len(row.value)
        self._written()
        self._checkpointer.committed(len(prepared), size, limit=self.CHECKPOINT_BYTES)

    def _fail(self, prepared: list[_PreparedWrite], error: Exception) -> None:
        self._error = describe_write_error(error)
        logger.error("store write failed: changes=%d error=%s", len(prepared), self._error)
        for write, *_ in prepared:
            if not write.done.done():
                write.done.set_exception(StatusError(500, "InternalError", f"the store could not write: {self._error}"))

    # Watching

    def watch(
        self,
        prefix: str,
        *,
        since: int | None,
        matches: Filter | None,
        encoder: Encoder | None,
        first: Encoder | None = None,
    ) -> Watcher:
        """Subscribe to the changes below `prefix`. With `since`, the changes after that revision come first.

        The watcher takes encoded events or, without an encoder, the StoreEvents.
        """
        watcher = Watcher(prefix, matches, encoder, first)
        if since is not None and since < self.revision:
            if since < self.compacted:
                raise Compacted(since, self.compacted)
            watcher.replay(self._history(since, self.revision, prefix))
        self._watchers.setdefault(collection_of(prefix), set()).add(watcher)
        return watcher

    def listen(self, prefix: str, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` with the present objects of a collection, and then with every change before watchers see it.

        The prefix "" means all collections, and then only the changes: a plane may have many objects.
        """
        if prefix:
            for record in self.collection(prefix).all():
                listener(StoreEvent("ADDED", record, None))
        self._listeners.setdefault(prefix, []).append(listener)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.get(collection_of(watcher.prefix), set()).discard(watcher)
        watcher.end()

    def batch_pause(self, watcher: Watcher, delivered: int) -> float:
        """How long a watcher waits after `delivered` events, so that more events share the next delivery.

        A delivery costs about the same for one event as for twenty, and a busy collection has more events on the way.
        """
        watchers = len(self._watchers.get(collection_of(watcher.prefix), ()))
        return min(watchers * delivered * _BATCH_PAUSE, _MAX_BATCH_PAUSE)

    def watcher_count(self) -> int:
        return sum(len(watchers) for watchers in self._watchers.values())

    def _history(self, since: int, last: int, prefix: str) -> History:
        """The changes after `since`, up to `last`, a few at a time; `Compacted` if they are removed meanwhile.

        A watcher may ask for two hundred thousand changes, so they are read when it takes them.
        """
        if self.collection(collection_of(prefix)).rev <= since:
            return
        for start in range(since, last, _HISTORY_STEP):
            if start < self.compacted:
                raise Compacted(start, self.compacted)
            end = min(start + _HISTORY_STEP, last)
            yield [self._past_event(row) for row in self._log.between(start, end, prefix)], end == last

    def _past_event(self, row: Row) -> StoreEvent:
        before = self._log.row(row.prev) if row.prev else None
        previous = Record(before.key, before.rev, before.value) if before else None
        record = Record(row.key, row.rev, row.value)
        return StoreEvent("DELETED" if row.deleted else "MODIFIED" if row.prev else "ADDED", record, previous)

    # Maintenance

    def compact(self, *, keep_seconds: float | None = None, keep_revisions: int | None = None) -> int:
        """Remove history older than the window; returns the number of removed rows."""
        if self._commit_task is not None:
            return 0
        return sum(self.compaction(keep_seconds=keep_seconds, keep_revisions=keep_revisions))

    def compaction(self, *, keep_seconds: float | None = None, keep_revisions: int | None = None) -> Iterator[int]:
        """`compact` in short steps: yields the number of removed rows after each, so that the caller can pause."""
        now = self._clock()
        self._revision_times.append((now, self.revision))
        horizon = now - (self.KEEP_SECONDS if keep_seconds is None else keep_seconds)
        target = self.revision - (self.KEEP_REVISIONS if keep_revisions is None else keep_revisions)
        while self._revision_times and self._revision_times[0][0] <= horizon:
            target = max(target, self._revision_times.popleft()[1])
        self.compacted = max(target, self.compacted)
        steps = self._log.compaction(self.compacted)
        while not self._is_closed:
            if self._commit_task is not None:  # the log has one transaction at a time
                yield 0
                continue
            removed = next(steps, None)
            if removed is None:
                return
            self._checkpointer.committed(0, _COMPACTION_STEP_BYTES, limit=self.CHECKPOINT_BYTES)
            yield removed

    async def close(self) -> None:
        """Commit what is pending, end every watch, close the file."""
        self._is_closed = True
        while self._pending or self._commit_task is not None:
            if self._commit_task is not None:
                await self._commit_task
            else:
                self._flush()
        for watchers in list(self._watchers.values()):
            for watcher in list(watchers):
                watcher.end()
        await self._checkpointer.close()
        self._threads.shutdown()
        self._log.close()
