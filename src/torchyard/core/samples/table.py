"""The curves of all jobs. `record` is all that a source of samples needs."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchyard.core.samples.series import Series

MAX_SERIES = 4000  # of all jobs; of at most 17 KB each: 68 MB
MAX_SERIES_OF_JOB = 400
MAX_NAME = 128


class SampledJob(NamedTuple):
    namespace: str
    kind: str
    name: str


class SeriesKey(NamedTuple):
    replica: str  # empty: of the job as a whole
    name: str
    unit: str


class SampleTable:
    """`lost_before`: when this table began, if earlier samples may have existed; None if it was loaded whole."""

    def __init__(self, lost_before: float | None = None, *, max_series: int | None = None) -> None:
        self._max_series = MAX_SERIES if max_series is None else max_series
        self._jobs: dict[SampledJob, dict[SeriesKey, Series]] = {}  # the job with the oldest sample first
        self._lost_before = lost_before
        self._size = 0
        self._runs: dict[
            SampledJob, tuple[str, str]
        ] = {}  # uids of the job now, and of the one that had its name before
        # What is not saved yet. A job may be in both: its old curves are deleted before the new ones are written.
        self.changed: dict[SampledJob, None] = {}  # the one that waits for the longest time first
        self.removed: set[SampledJob] = set()

    def record(self, job: SampledJob, replica: str, name: str, time: float, value: float, *, unit: str = "") -> None:
        curves = self._jobs.pop(job, None)
        if curves is None:
            curves = {}
        self._jobs[job] = curves
        key = SeriesKey(replica, name[:MAX_NAME], unit)
        series = curves.get(key)
        if series is None:
            if len(curves) >= MAX_SERIES_OF_JOB:
                return
            series = curves[key] = Series()
            self._size += 1
            self._make_room()
        series.add(time, value)
        self.changed[job] = None

    def accept_run(self, job: SampledJob, uid: str) -> bool:
        """Whether samples of the job with this uid are recorded.

        A job that was created again under the same name replaces the curves of the one before, whose late samples are
        not recorded. An empty uid is unknown.
        """
        current, previous = self._runs.get(job, ("", ""))
        if not uid or uid == current:
            return True
        if uid == previous:
            return False
        if current and job in self._jobs:
            self._remove(job)
        self._runs[job] = uid, current
        return True

    def has_room(self, job: SampledJob, before: float) -> bool:
        """Whether samples of a job can be recorded without removing those of a job that had one since then."""
        if job in self._jobs or self._size < self._max_series:
            return True
        oldest = next(iter(self._jobs.values()), {})
        return max((series.last_time for series in oldest.values()), default=0.0) < before

    def run_uid(self, job: SampledJob) -> str:
        """The uid of the job that the samples are of; empty if it is unknown."""
        return self._runs.get(job, ("", ""))[0]

    def put(self, job: SampledJob, key: SeriesKey, series: Series) -> None:
        """Add a whole curve that was saved."""
        self._jobs.setdefault(job, {})[key] = series
        self._size += 1
        self._make_room()

    def curves(self, job: SampledJob) -> dict[SeriesKey, Series]:
        return self._jobs.get(job, {})

    def document(self, jobs: list[SampledJob], since: float) -> dict[str, Any]:
        """The curves of a job as the console reads them; `jobs` are the names under which it is known."""
        curves = [(key, series) for job in jobs for key, series in self.curves(job).items()]
        return {
            "series": [
                {"name": key.name, "replica": key.replica, "unit": key.unit, "points": points}
                for key, series in curves
                if (points := series.points(since))
            ],
            "lostBefore": self._lost_before,
        }

    def remove_older(self, before: float) -> None:
        """Remove jobs whose last sample is older."""
        for job, curves in list(self._jobs.items()):
            if all(series.last_time < before for series in curves.values()):
                self._remove(job)

    def __len__(self) -> int:
        return self._size

    def _make_room(self) -> None:
        """Remove the jobs that have not had a sample for the longest time, but never the one that is being added to."""
        while self._size > self._max_series and len(self._jobs) > 1:
            job = next(iter(self._jobs))
            last = max((series.last_time for series in self._jobs[job].values()), default=0.0)
            self._lost_before = max(self._lost_before or 0.0, last)
            self._remove(job)

    def _remove(self, job: SampledJob) -> None:
        self._size -= len(self._jobs.pop(job))
        self._runs.pop(job, None)
        self.changed.pop(job, None)
        self.removed.add(job)
