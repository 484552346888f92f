"""When the progress of which job is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

# A job is written at most once in this time.
INTERVAL = 5.0
# Jobs are written less often when so many report that they would be more than this many writes a second.
MAX_WRITES_PER_SECOND = 25.0
# A job without reports for this time is forgotten.
IDLE_SECONDS = 600.0

Key = TypeVar("Key")


@dataclass(slots=True)
class _Entry:
    reported: float
    written: float | None = None
    is_dirty: bool = False
    is_last: bool = False
    is_urgent: bool = False
    was_urgent: bool = False


class WriteSchedule(Generic[Key]):
    """The first report of a job is due at once, the last one after `INTERVAL`, those between as the load allows.

    One report more is due at once: the first with metrics. It often follows a bar that shows 0 %.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._dirty: dict[Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def offer(self, key: Key, now: float, *, is_last: bool = False, is_urgent: bool = False) -> None:
        """There is something to write about this job; `is_urgent`: at once, if it is the first time."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(now)
        entry.reported, entry.is_dirty, entry.is_last = now, True, is_last
        if is_urgent and not entry.was_urgent:
            entry.is_urgent = entry.was_urgent = True
        self._dirty[key] = entry

    def retry(self, key: Key, now: float) -> None:
        """The job could not be written. It is due again, unless its last report is too old."""
        entry = self._entries.get(key)
        if entry is not None and now < entry.reported + IDLE_SECONDS:
            entry.is_dirty = True
            self._dirty[key] = entry

    def note_written(self, key: Key, now: float) -> None:
        """Another process has written this job: the next write of this one waits."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(now)
        entry.written = now

    def due(self, now: float) -> list[Key]:
        """The jobs to write now. They count as written."""
        interval = max(INTERVAL, len(self._entries) / MAX_WRITES_PER_SECOND)
        keys = [key for key, entry in self._dirty.items() if self._time(entry, interval) <= now]
        for key in keys:
            entry = self._dirty.pop(key)
            entry.is_dirty, entry.is_urgent, entry.written = False, False, now
        return keys

    @staticmethod
    def _time(entry: _Entry, interval: float) -> float:
        if entry.written is None or entry.is_urgent:
            return entry.reported
        return entry.written + (INTERVAL if entry.is_last else interval)

    def is_idle(self) -> bool:
        return not self._dirty

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)
        self._dirty.pop(key, None)

    def idle_keys(self, now: float) -> list[Key]:
        """The jobs that have not reported for a long time, and whose last report is written."""
        return [
            key for key, entry in self._entries.items() if not entry.is_dirty and entry.reported + IDLE_SECONDS < now
        ]
