"""The bytes on disk: one append-only SQLite table whose row id is the resource version.

Every change of every object is a row and nothing is overwritten, so the table is also the watch history and has every
object as of any revision. Compaction removes superseded rows. This module knows revisions, keys and bytes; it does not
know what an object is.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from torchyard.api.errors import YardError

Fsync = Literal["normal", "full"]

APPLICATION_ID = 0x59415244  # "YARD", in the header of every database of ours
FORMAT = 1
# How long a write waits for another program that has locked the database.
LOCK_MILLISECONDS = 10_000
_MAX_REVISION = 1 << 53
_SQLITE_MAGIC = b"SQLite format 3\x00"

# One transaction of a compaction takes about 10 ms: so many revisions, or pages.
_COMPACTION_STEP = 250
_VACUUM_STEP = 250
# As many unused pages stay in the file, for the next writes: 4 MiB.
_SPARE_PAGES = 1024
_INCREMENTAL = 2
# The write-ahead log is cut back to this length when it starts again.
_MAX_IDLE_WAL_BYTES = 16 << 20

_TABLES = """
CREATE TABLE log (
    rev     INTEGER PRIMARY KEY,
    key     TEXT    NOT NULL,
    prev    INTEGER NOT NULL,  -- the revision this row replaces; 0: the object is new
    deleted INTEGER NOT NULL,  -- 1: the object is gone; value is its last state
    crc     INTEGER NOT NULL,
    value   BLOB    NOT NULL
) STRICT;
CREATE INDEX log_by_key ON log (key, rev);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES ('compacted', 0);
"""


class Row(NamedTuple):
    rev: int
    key: str
    prev: int
    deleted: bool
    value: bytes


class StoreFileError(YardError):
    """The file is not a Torchyard store, or is damaged. It was not modified."""

    code = "StoreFile"


def is_locked(error: Exception) -> bool:
    """Whether another program has locked the database."""
    # Python's own errors of this type have no code.
    return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY


def describe_write_error(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
        return (
            "the disk of the state directory is full: free some space there, and writes succeed again; "
            "objects can be read meanwhile"
        )
    return str(error)


class Log:
    """An open log. Not thread-safe: one thread at a time, except that `checkpoint` may run beside it."""

    def __init__(self, path: Path, *, fsync: Fsync = "normal") -> None:
        self.path = path
        is_new = _check_header(path)
        if not is_new:
            _check_integrity(path)
        # Created with its final mode: the log holds secrets.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
        self._db.execute(f"PRAGMA busy_timeout = {LOCK_MILLISECONDS}")
        if is_new:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is written: see `free_pages`
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {FORMAT}")
        self._db.execute("PRAGMA journal_mode = WAL")
        # NORMAL survives a crash of the process; FULL also survives a power failure.
        self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync == 'full' else 'NORMAL'}")
        # Checkpoints run beside the writers (see `checkpoint`), so that no write waits for one.
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        self._db.execute(f"PRAGMA journal_size_limit = {_MAX_IDLE_WAL_BYTES}")
        if is_new:
            self._db.executescript(f"BEGIN; {_TABLES} COMMIT;")
        # From here on, a database that another program locks must not stop the event loop: see `append_locked`.
        self._db.execute("PRAGMA busy_timeout = 0")
        # Readers have a connection of their own, so that they never see an open transaction.
        self._reader = sqlite3.connect(_uri(path, "ro"), uri=True, isolation_level=None, check_same_thread=False)
        # So have checkpoints: they run beside the writers, and give up rather than wait for a reader.
        self._checkpoint_db = sqlite3.connect(
            _uri(path, "rw"), uri=True, isolation_level=None, check_same_thread=False, timeout=0
        )

        self._compacted_to = 0  # by this process; an earlier one may have ended during a compaction

    def close(self) -> None:
        self._reader.close()
        self._checkpoint_db.close()
        self._db.close()

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows in one transaction. They are as durable as the fsync mode promises when this returns."""
        self.begin(rows)
        self.commit()

    def begin(self, rows: Iterable[Row]) -> None:
        """Write rows into a transaction that `commit` ends. Nothing else may be written in between."""
        self._db.execute("BEGIN IMMEDIATE")
        with self._rollback_on_error():
            self._db.executemany(
                "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)",
                [(row.rev, row.key, row.prev, int(row.deleted), zlib.crc32(row.value), row.value) for row in rows],
            )

    def commit(self) -> None:
        """Commit the transaction; with fsync=full, wait for the disk."""
        with self._rollback_on_error():
            self._db.execute("COMMIT")

    def append_locked(self, rows: Iterable[Row]) -> None:
        """Write rows in one transaction, and wait for a lock of another program. For a thread of its own."""
        self._db.execute(f"PRAGMA busy_timeout = {LOCK_MILLISECONDS}")
        try:
            self.append(rows)
        finally:
            self._db.execute("PRAGMA busy_timeout = 0")

    def touch(self) -> None:
        """Write the time, to see whether writing is possible. For a thread of its own."""
        self._db.execute(f"PRAGMA busy_timeout = {LOCK_MILLISECONDS}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._rollback_on_error():
                # A value that changes: SQLite does not write a page that stays as it is.
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('touched', ?)", (time.time_ns(),))
                self._db.execute("COMMIT")
        finally:
            self._db.execute("PRAGMA busy_timeout = 0")

    @contextmanager
    def _rollback_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def last_revision(self) -> int:
        newest = self._db.execute("SELECT max(rev) FROM log").fetchone()[0]
        return max(int(newest or 0), self.compacted())

    def compacted(self) -> int:
        """History up to and including this revision may be incomplete."""
        return int(self._db.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()[0])

    def current(self) -> Iterator[tuple[int, str, bytes]]:
        """Revision, key and value of every object that exists. Reads them in one pass: a start waits for it."""
        query = (
            "SELECT rev, key, crc, value FROM log AS one WHERE deleted = 0 AND NOT EXISTS"
            " (SELECT 1 FROM log AS newer WHERE newer.key = one.key AND newer.rev > one.rev)"
        )
        crc32 = zlib.crc32
        try:
            for rev, key, crc, value in self._reader.execute(query):
                if crc32(value) != crc:
                    raise self._damaged(key, rev)
                yield rev, key, value
        except sqlite3.DatabaseError as error:
            raise StoreFileError(f"{self.path} is damaged: {error}", hint=_RESTORE_HINT) from error

    def between(self, rev: int, last: int, prefix: str) -> list[Row]:
        """Every change after `rev` up to `last` of the keys that start with `prefix`, oldest first."""
        # The plus keeps SQLite from using the index on keys, which would read all history below the prefix.
        query = (
            "SELECT rev, key, prev, deleted, crc, value FROM log"
            " WHERE rev > ? AND rev <= ? AND +key >= ? AND +key < ? ORDER BY rev"
        )
        return list(self._rows(query, (rev, last, prefix, _after(prefix))))

    def row(self, rev: int) -> Row | None:
        return next(self._rows("SELECT rev, key, prev, deleted, crc, value FROM log WHERE rev = ?", (rev,)), None)

    def at(self, rev: int, key: str) -> Row | None:
        """An object as of revision `rev`; None if it did not exist then."""
        query = (
            "SELECT rev, key, prev, deleted, crc, value FROM log WHERE key = ? AND rev <= ? ORDER BY rev DESC LIMIT 1"
        )
        row = next(self._rows(query, (key, rev)), None)
        return None if row is None or row.deleted else row

    def deleted_after(self, rev: int, prefix: str) -> list[str]:
        """The keys that start with `prefix` and were deleted after `rev`, in order."""
        # The plus keeps SQLite from using the index on keys, which would read all history below the prefix.
        query = "SELECT DISTINCT key FROM log WHERE rev > ? AND deleted = 1 AND +key >= ? AND +key < ? ORDER BY key"
        return [key for (key,) in self._reader.execute(query, (rev, prefix, _after(prefix)))]

    def compact(self, rev: int) -> int:
        """Delete the rows superseded at or before `rev`; returns their number."""
        return sum(self.compaction(rev))

    def compaction(self, rev: int) -> Iterator[int]:
        """`compact` in short transactions: yields the number of deleted rows after each.

        Other writes may happen between two steps. Half of a compaction does no harm: the history up to `rev` counts as
        incomplete from the start on, and the next compaction of this or another process deletes the rest.
        """
        if rev > self.compacted():
            self._db.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (rev,))
        while self._compacted_to < rev:
            first, last = self._compacted_to, min(self._compacted_to + _COMPACTION_STEP, rev)
            self._db.execute("BEGIN IMMEDIATE")
            with self._rollback_on_error():
                deleted = self._db.execute(
                    "DELETE FROM log WHERE rev IN"
                    " (SELECT prev FROM log WHERE rev > ?1 AND rev <= ?2 AND prev > 0"
                    "  UNION ALL SELECT rev FROM log WHERE rev > ?1 AND rev <= ?2 AND deleted = 1)",
                    (first, last),
                ).rowcount
                self._db.execute("COMMIT")
            self._compacted_to = last
            yield deleted
        while self._free_pages() > _SPARE_PAGES:
            # as a script, which runs to its end: `execute` stops after the first page
            self._db.executescript(f"PRAGMA incremental_vacuum({_VACUUM_STEP})")
            yield 0

    def _free_pages(self) -> int:
        """The unused pages of the file that can be given back; none in a file of an earlier version of this program."""
        if self._db.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            return 0
        return int(self._db.execute("PRAGMA freelist_count").fetchone()[0])

    def wal_bytes(self) -> int:
        """The length of the write-ahead log's file."""
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database. Safe from another thread, beside a writer."""
        self._checkpoint_db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def restart_wal(self) -> bool:
        """Let the next transaction reuse the write-ahead log from its start; returns whether it will.

        Must not run beside a writer. Without this the file grows for as long as writes overlap. A file that does not
        grow also makes a commit wait a fraction of the time for the disk, since its blocks are allocated already.
        """
        busy, _, _ = self._checkpoint_db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        return not busy

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> Iterator[Row]:
        try:
            for rev, key, prev, deleted, crc, value in self._reader.execute(query, values):
                if zlib.crc32(value) != crc:
                    raise self._damaged(key, rev)
                yield Row(rev, key, prev, bool(deleted), value)
        except sqlite3.DatabaseError as error:
            raise StoreFileError(f"{self.path} is damaged: {error}", hint=_RESTORE_HINT) from error

    def _damaged(self, key: str, rev: int) -> StoreFileError:
        return StoreFileError(f"{self.path}: the object {key} at revision {rev} is damaged", hint=_RESTORE_HINT)


_RESTORE_HINT = "restore a backup with `yard restore`, or start with another --state directory"


def verify(path: Path, *, objects: bool = False) -> int:
    """Read every row of a log file without changing it; returns the last revision, or raises `StoreFileError`.

    With `objects`, every value must be an object: a file from elsewhere may hold anything with a correct checksum.
    """
    if not path.exists():
        raise StoreFileError(f"{path} does not exist", hint="name a file written by `yard backup`")
    if _check_header(path):
        raise StoreFileError(f"{path} is empty", hint="name a file written by `yard backup`")
    _check_integrity(path)
    last = 0
    try:
        with _connected(_uri(path, "ro")) as db:
            for rev, key, crc, value in db.execute("SELECT rev, key, crc, value FROM log ORDER BY rev"):
                if zlib.crc32(value) != crc or not 0 < rev <= _MAX_REVISION:
                    raise StoreFileError(f"{path}: the object {key} at revision {rev} is damaged", hint=_RESTORE_HINT)
                if objects and not _is_object(value):
                    message = f"{path}: the object {key} at revision {rev} is not an object of the API"
                    raise StoreFileError(message, hint=_RESTORE_HINT)
                last = rev
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise StoreFileError(f"{path} is damaged: {error}", hint=_RESTORE_HINT) from error
    return int(last)


def _is_object(value: bytes) -> bool:
    try:
        decoded = orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return isinstance(decoded, dict) and isinstance(decoded.get("metadata"), dict)


def copy_store(source: Path, target: Path) -> None:
    """Copy a consistent state of a store into a new file, beside a plane that writes to the source."""
    if target.exists():
        raise StoreFileError(f"{target} exists", hint="choose another file or remove it first")
    _check_header(source)
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StoreFileError(f"cannot write {target}: {error.strerror}", hint="choose another place") from error
    os.close(descriptor)
    try:
        with _connected(_uri(source, "ro")) as original, _connected(_uri(target, "rw")) as copy:
            original.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that a reader of the copy creates no files beside it
    except sqlite3.Error as error:
        target.unlink()  # an incomplete copy is useless
        raise StoreFileError(
            f"cannot copy {source} to {target}: {error}", hint="make room, or choose another place"
        ) from error


def _uri(path: Path, mode: str) -> str:
    """A path may contain the characters that separate the parts of a URI."""
    return f"file:{urllib.parse.quote(os.fsencode(path))}?mode={mode}"


def _after(prefix: str) -> str:
    """The smallest key greater than every key that starts with `prefix` (keys never hold U+10FFFF)."""
    return prefix + "\U0010ffff"


@contextmanager
def _connected(uri: str) -> Iterator[sqlite3.Connection]:
    """A connection that is closed on exit (sqlite3's own context manager only commits)."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        yield db
    finally:
        db.close()


def _check_header(path: Path) -> bool:
    """Whether the file is new or empty; raises if it is not a Torchyard store. Reads the header only."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a named pipe would block
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreFileError(f"{path} is not a regular file", hint="name another file")
            header = os.read(descriptor, 100)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StoreFileError(f"cannot read {path}: {error.strerror}", hint="name another file") from error
    if not header:
        return True
    if not header.startswith(_SQLITE_MAGIC):
        raise StoreFileError(f"{path} is not a Torchyard store", hint="choose another --state directory")
    if len(header) < 100:
        raise StoreFileError(f"{path} is damaged: its header is cut short", hint=_RESTORE_HINT)
    application = int.from_bytes(header[68:72], "big")
    if application != APPLICATION_ID:
        raise StoreFileError(
            f"{path} is the SQLite database of another program", hint="choose another --state directory"
        )
    version = int.from_bytes(header[60:64], "big")
    if version > FORMAT:
        raise StoreFileError(
            f"{path} was written by a newer Torchyard (format {version}, this one reads {FORMAT})",
            hint="upgrade torchyard, or choose another --state directory",
        )
    return False


def _check_schema(path: Path, db: sqlite3.Connection) -> None:
    """Raise if the file has other tables than ours, or triggers or views, which would run with every write."""
    with _connected("file::memory:") as own:
        own.executescript(_TABLES)
        expected = _schema(own)
    if _schema(db) != expected:
        raise StoreFileError(f"{path} is not a Torchyard store: its tables differ", hint="name another file")


def _schema(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
    return {(kind, name, " ".join(re.sub(r"--[^\n]*", "", sql or "").split())) for kind, name, sql in rows}


def _check_integrity(path: Path) -> None:
    """Raise if SQLite finds the file damaged. Opens it read-only, so that a damaged file is not modified."""
    try:
        with _connected(_uri(path, "ro")) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            _check_schema(path, db)
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict == "ok":
                db.execute("SELECT rev, key, prev, deleted, crc, value FROM log LIMIT 0")
                db.execute("SELECT name, value FROM meta LIMIT 0")
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict != "ok":
        raise StoreFileError(f"{path} is damaged: {verdict}", hint=_RESTORE_HINT)
