"""The samples of a plane's jobs on disk, beside the store: one row a curve, replaced as a whole."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from torchyard.core.samples.series import Series
from torchyard.core.samples.table import SampledJob, SampleTable, SeriesKey

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    namespace TEXT, kind TEXT, job TEXT, replica TEXT, name TEXT, unit TEXT, last REAL, data BLOB,
    PRIMARY KEY (namespace, kind, job, replica, name, unit)
) WITHOUT ROWID;
"""
Row = tuple[str, str, str, str, str, str, float, bytes]


class SampleStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> SampleTable:
        """The saved curves. A file that cannot be read is replaced: a plane must start without its samples."""
        table = SampleTable()
        try:
            with self._opened() as database:
                rows = database.execute("SELECT * FROM series ORDER BY last")
                for namespace, kind, job, replica, name, unit, _, data in rows:
                    series = Series.from_bytes(data)
                    table.put(SampledJob(namespace, kind, job), SeriesKey(replica, name, unit), series)
        except (sqlite3.DatabaseError, ValueError) as error:
            log.warning("samples were lost: path=%s error=%r", self._path, str(error))
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return SampleTable()
        return table

    def save(self, rows: list[Row], removed: list[SampledJob]) -> None:
        with self._opened() as database:
            database.executemany("DELETE FROM series WHERE namespace = ? AND kind = ? AND job = ?", removed)
            database.executemany("INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite follows the umask
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(_SCHEMA)
            with database:
                yield database


def take_changes(table: SampleTable) -> tuple[list[Row], list[SampledJob]]:
    """What has changed since the last call, as rows, and which jobs were removed."""
    rows = [
        (*job, *key, series.last_time, series.to_bytes())
        for job in table.changed
        for key, series in table.curves(job).items()
    ]
    removed = list(table.removed)
    table.changed.clear()
    table.removed.clear()
    return rows, removed
