"""The samples of jobs on disk: one row a curve, replaced as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from torchyard.core.samples.series import Series
from torchyard.core.samples.table import SampledJob, SampleTable, SeriesKey

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    namespace TEXT, kind TEXT, job TEXT, replica TEXT, name TEXT, unit TEXT, last REAL, data BLOB,
    PRIMARY KEY (namespace, kind, job, replica, name, unit)
) WITHOUT ROWID;
"""
_MAX_SAVED_CURVES = 500  # at a time; 9 MB if they are long
Snapshot = tuple[SampledJob, SeriesKey, Series]


class SampleStore:
    """`journal`: `DELETE` for a file on a network filesystem, where SQLite's write-ahead log does not work."""

    def __init__(self, path: Path, *, journal: Literal["WAL", "DELETE"] = "WAL", max_series: int | None = None) -> None:
        self._path, self._journal, self._max_series = path, journal, max_series

    def load(self) -> SampleTable:
        """The saved curves. A damaged file is replaced, and one that cannot be read now is kept: a plane must start."""
        table = SampleTable(max_series=self._max_series)
        try:
            with self._opened() as database:
                rows = database.execute("SELECT * FROM series ORDER BY last")
                for namespace, kind, job, replica, name, unit, _, data in rows:
                    series = Series.from_bytes(data)
                    table.put(SampledJob(namespace, kind, job), SeriesKey(replica, name, unit), series)
        except (sqlite3.OperationalError, OSError) as error:  # the disk is full, or another process has a lock
            log.warning("samples not read: path=%s error=%r", self._path, str(error))
            return SampleTable(lost_before=time.time(), max_series=self._max_series)
        except (sqlite3.DatabaseError, ValueError) as error:
            log.warning("samples were lost: path=%s error=%r", self._path, str(error))
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return SampleTable(max_series=self._max_series)
        return table

    def save(self, changed: list[Snapshot], removed: list[SampledJob]) -> None:
        rows = ((*job, *key, series.last_time, series.to_bytes()) for job, key, series in changed)
        with self._opened() as database:
            database.executemany("DELETE FROM series WHERE namespace = ? AND kind = ? AND job = ?", removed)
            database.executemany("INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite follows the umask
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as database:
            database.execute(f"PRAGMA journal_mode = {self._journal}")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(_SCHEMA)
            with database:
                yield database


def take_changes(table: SampleTable, max_curves: int | None = None) -> tuple[list[Snapshot], list[SampledJob]]:
    """Copies of what has changed since it was taken the last time, and which jobs were removed.

    With a limit, whole jobs up to this many curves (and those of one more job); the others remain for the next call.
    """
    changed: list[Snapshot] = []
    for job in list(table.changed):
        if max_curves is not None and len(changed) >= max_curves:
            break
        changed += [(job, key, series.copy()) for key, series in table.curves(job).items()]
        del table.changed[job]
    removed = list(table.removed)
    table.removed.clear()
    return changed, removed


async def save_some(store: SampleStore, table: SampleTable) -> None:
    """Save a part of what has changed; what cannot be saved is tried again the next time."""
    changes = take_changes(table, _MAX_SAVED_CURVES)
    try:
        await asyncio.to_thread(store.save, *changes)
    except (sqlite3.Error, OSError) as error:
        _not_saved(error, table, *changes)


def save_all(store: SampleStore, table: SampleTable) -> None:
    """Save all that has changed, before the process ends."""
    changes = take_changes(table)
    try:
        store.save(*changes)
    except (sqlite3.Error, OSError) as error:
        _not_saved(error, table, *changes)


def _not_saved(error: Exception, table: SampleTable, changed: list[Snapshot], removed: list[SampledJob]) -> None:
    log.warning("samples not saved: curves=%d error=%r", len(changed), str(error))
    put_back(table, changed, removed)


def put_back(table: SampleTable, changed: list[Snapshot], removed: list[SampledJob]) -> None:
    """What was taken could not be saved: it is taken again the next time."""
    table.changed = dict.fromkeys([*(job for job, _, _ in changed), *table.changed])
    table.removed.update(removed)
