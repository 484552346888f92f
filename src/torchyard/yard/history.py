"""The history of a plane: the jobs that ended, in a database, and the logs of their pods, in files beside it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from torchyard import files
from torchyard.api.errors import YardError
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.core.run.record import ReplicaRecord, RunRecord

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    uid TEXT PRIMARY KEY, namespace TEXT, name TEXT, ended TEXT, record TEXT
);
CREATE INDEX IF NOT EXISTS runs_by_end ON runs (ended);
"""


class HistoryStore:
    """The history in a directory. A plane writes it; commands read it, also while no plane runs.

    `write` keeps its connection, until `close`. The last connection of a database that is closed copies the write-ahead
    log into the file and waits for the disk three times, which the plane's store would wait for at each end of a pod.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._database = directory, directory / "runs.db"
        self._writer: sqlite3.Connection | None = None
        self._written_file = (0, 0)  # device and inode
        self._lock = threading.Lock()  # of the writer, which threads use in turns

    @property
    def logs(self) -> Path:
        """Logs by the uid of the job, the name of the pod and that of the container."""
        return self._directory / "logs"

    def uids(self) -> set[str]:
        """The uids of the recorded jobs. A damaged file is set aside, and a new one begun."""
        try:
            return self._uids()
        except sqlite3.OperationalError:  # the disk is full, or another process has a lock
            raise
        except sqlite3.DatabaseError as error:
            damaged = self._database.with_name(f"{self._database.name}.damaged")
            log.warning(
                "history is damaged and begins anew: path=%s old=%s error=%r", self._database, damaged, str(error)
            )
            self.close()
            for suffix in ("-wal", "-shm"):
                self._database.with_name(self._database.name + suffix).unlink(missing_ok=True)
            self._database.replace(damaged)
            return self._uids()

    def _uids(self) -> set[str]:
        with self._opened() as database:
            return {str(uid) for (uid,) in database.execute("SELECT uid FROM runs")}

    def write(self, records: list[RunRecord], replicas: list[tuple[str, ReplicaRecord]]) -> None:
        """Keep records, each in place of an earlier one of its job, and how replicas of recorded jobs (uid) ended."""
        with self._lock, self._opened_writer() as database:
            for record in records:
                _save(database, _merged(_find(database, record["uid"]), record))
            for uid, replica in replicas:
                earlier = _find(database, uid)
                if earlier is not None:
                    _save(database, {**earlier, "replicas": _with(earlier["replicas"], replica)})

    def prune(self, before: datetime) -> None:
        """Remove everything that ended earlier."""
        self.uids()  # sets a damaged file aside
        with self._opened() as database:
            database.execute("DELETE FROM runs WHERE ended < ?", (to_rfc3339(before),))
        if self.logs.is_dir():
            for directory in self.logs.iterdir():
                if directory.stat().st_mtime < before.timestamp():
                    files.remove_tree(directory)

    def close(self) -> None:
        """Close the connection of `write`; the next write opens another."""
        with self._lock:
            self._close_writer()

    def clear(self) -> None:
        """Remove everything."""
        self.close()
        if self._directory.exists():
            files.remove_tree(self._directory)

    def list(self, namespace: str = "", *, name: str = "") -> list[RunRecord]:
        """The records of a namespace, or of all, and of a name, if one is given; the last ended first."""
        if not self._database.exists():
            return []
        query = "SELECT record FROM runs WHERE (? = '' OR namespace = ?) AND (? = '' OR name = ?) ORDER BY ended DESC"
        try:
            with self._opened() as database:
                return [json.loads(text) for (text,) in database.execute(query, (namespace, namespace, name, name))]
        except (sqlite3.Error, OSError) as error:
            message = f"the history in {self._database} cannot be read: {error}"
            raise YardError(
                message, hint="`yard status` shows whether the plane can write it", code="BadState"
            ) from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self._connect()) as database, database:
            yield database

    @contextlib.contextmanager
    def _opened_writer(self) -> Iterator[sqlite3.Connection]:
        if self._writer is not None and _file_id(self._database) != self._written_file:
            self._close_writer()  # the file was removed or replaced
        if self._writer is None:
            self._writer = self._connect()
            self._written_file = _file_id(self._database)
        try:
            with self._writer:
                yield self._writer
        except BaseException:
            self._close_writer()
            raise

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _connect(self) -> sqlite3.Connection:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite follows the umask
        database = sqlite3.connect(self._database, timeout=30, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def log_files(directory: Path) -> list[tuple[str, str, Path]]:
    """The logs of one job: (pod, container, file of its last attempt), sorted."""
    logs: list[tuple[str, str, Path]] = []
    for container in sorted(directory.glob("*/*")):
        attempts = sorted(container.glob("*.log"), key=lambda path: int(path.stem))
        logs += [(container.parent.name, container.name, attempts[-1])] if attempts else []
    return logs


def duration_seconds(record: RunRecord) -> float:
    """How long a job existed until it ended."""
    return (parse_rfc3339(record["ended"]) - parse_rfc3339(record["created"])).total_seconds()


def _find(database: sqlite3.Connection, uid: str) -> RunRecord | None:
    row = database.execute("SELECT record FROM runs WHERE uid = ?", (uid,)).fetchone()
    record: RunRecord | None = json.loads(row[0]) if row else None
    return record


def _save(database: sqlite3.Connection, record: RunRecord) -> None:
    values = (record["uid"], record["namespace"], record["name"], record["ended"], json.dumps(record))
    database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", values)


def _merged(earlier: RunRecord | None, record: RunRecord) -> RunRecord:
    """A job that ended before it was deleted keeps its end; what its pods told before they went is not forgotten."""
    if earlier is None:
        return record
    replicas = earlier["replicas"]
    for replica in record["replicas"]:
        replicas = _with(replicas, replica)
    return {
        **record,
        "ended": min(earlier["ended"], record["ended"]),
        "exitCode": earlier["exitCode"] if record["exitCode"] is None else record["exitCode"],
        "message": record["message"] or earlier["message"],
        "gpuSeconds": max(earlier["gpuSeconds"], record["gpuSeconds"]),
        "replicas": replicas,
    }


def _with(replicas: list[ReplicaRecord], replica: ReplicaRecord) -> list[ReplicaRecord]:
    """The replicas with a newer state of one, in its place. What has ended stays ended."""
    old = next((other for other in replicas if other["pod"] == replica["pod"]), None)
    if old is None:
        return [*replicas, replica]
    if old["exitCode"] is not None and replica["exitCode"] is None:
        return replicas
    return [replica if other["pod"] == replica["pod"] else other for other in replicas]
