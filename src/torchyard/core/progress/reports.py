"""A report of a training's progress, and the one place that every report passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

ENDPOINT, LOG = "endpoint", "log"


@dataclass(frozen=True, slots=True)
class JobReference:
    """The object that a pod belongs to: a TrainJob, JobSet, PyTorchJob or Job."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What one replica reported at one time.

    Attributes:
        job: the job of the replica.
        replica: the name of the pod; empty if it is unknown.
        rank: the place of the replica in its job. Of several that report, the first one's progress is the job's.
        time: when it arrived, or when the line was printed, by the clock of the server or the node. Reports are
            ordered by it.
        source: `ENDPOINT` or `LOG`.
        percent: of the whole training, 0 to 100; None if the report does not tell.
        remaining: estimated seconds until the end.
        metrics: names and values as they are shown, such as `loss` and `0.25`.
        updated: the time that the program states, never after `time`; None if it states none.
        is_last: whether no further report is expected, so that this one is not held back for long.
    """

    job: JobReference
    replica: str
    rank: int
    time: datetime
    source: str
    percent: int | None = None
    remaining: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    updated: datetime | None = None
    is_last: bool = False

    def samples(self) -> Iterator[tuple[str, float]]:
        """The metrics that are finite numbers."""
        for name, text in self.metrics.items():
            try:
                value = float(text)
            except ValueError:
                continue
            if math.isfinite(value):
                yield name, value


Observer = Callable[[ProgressReport], None]


class ProgressReports:
    """Passes every report to its observers, which must not block."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def subscribe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def publish(self, report: ProgressReport) -> None:
        for observer in self._observers:
            observer(report)
