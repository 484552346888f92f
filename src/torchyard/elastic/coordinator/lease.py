"""How long a worker may be silent: longer after workers that were only slow had been taken for dead. Pure.

On a machine with too little CPU time, heartbeats come late. If every late worker were expelled, those that come back
would expel others again, and no world would ever form.
"""

from __future__ import annotations

LARGEST_FACTOR = 8
SHORTEN_AFTER = 60.0
"""Seconds without a wrong expulsion after which an extended lease is halved."""


class Lease:
    """The lease of all workers of a job.

    Args:
        seconds: the configured lease; it never becomes shorter than this.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._factor = 1
        self._changed_at = 0.0
        self._expelled: dict[str, int] = {}

    @property
    def seconds(self) -> float:
        return self._seconds * self._factor

    def expelled(self, name: str, pid: int) -> None:
        """Note that a worker was silent for too long."""
        self._expelled[name] = pid

    def joined(self, name: str, pid: int, now: float) -> bool:
        """Return whether the lease was extended, because an expelled process has come back: it was only slow."""
        if self._expelled.pop(name, None) != pid:
            return False
        self._changed_at = now
        if self._factor >= LARGEST_FACTOR:
            return False
        self._factor *= 2
        return True

    def shorten(self, now: float) -> None:
        """Return to the configured lease in steps while no worker is expelled wrongly."""
        if self._factor > 1 and now - self._changed_at > SHORTEN_AFTER:
            self._factor //= 2
            self._changed_at = now
