"""Measures how long a change of the world takes, from its cause to the first step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class RecoveryTimes:
    """The times of the rendezvous under way, and of those that are complete.

    Attributes:
        worlds_started: how many worlds this incarnation of the coordinator has begun.
        complete: the durations of every world whose first step was reported, in milliseconds.
    """

    worlds_started: int = 0
    complete: list[dict[str, float]] = field(default_factory=list)
    _caused_at: float | None = None
    _detection_ms: float | None = None
    """How long the last lost worker had been silent when its loss was detected: an upper bound of the detection."""

    def worker_lost(self, last_seen: float) -> float:
        self._detection_ms = round((time.monotonic() - last_seen) * 1000, 2)
        return self._detection_ms

    def rendezvous_started(self) -> None:
        if self._caused_at is None:
            self._caused_at = time.monotonic()

    def world_started(self) -> float:
        """Return the milliseconds since the rendezvous began."""
        agree_ms = (time.monotonic() - self._caused_at) * 1000 if self._caused_at is not None else 0.0
        self._caused_at = None
        self.worlds_started += 1
        return round(agree_ms, 2)

    def first_step(self, durations: dict[str, float]) -> dict[str, float]:
        """Return the durations of a world's first step, with the detection before them."""
        self.complete.append(durations)
        if self._detection_ms is not None:
            durations = {"detect_ms": self._detection_ms} | durations
            self._detection_ms = None
        return durations
