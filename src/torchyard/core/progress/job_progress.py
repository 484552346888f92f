"""The reports of one job, combined into the status that the job shows."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.progress.lines import merged_metrics
from torchyard.core.progress.reports import ENDPOINT, ProgressReport
from torchyard.core.progress.trainer_status import trainer_status

# What a program reports itself is better than what its log tells, as long as it goes on reporting.
_ENDPOINT_COUNTS_FOR = timedelta(minutes=1)


class JobProgress:
    """`add` reports as they come; `status` is what to show, None without any.

    `is_compared` and `written` are for the writer: whether it has seen what the job shows, and what it wrote.
    """

    def __init__(self) -> None:
        self.status: Object | None = None
        self.is_over = self.is_compared = False
        self.written: deque[str] = deque(maxlen=4)  # the times of the statuses that this process has written
        self._rank: int | None = None
        self._reported: datetime | None = None  # at the endpoint, the last time
        self._metrics: dict[str, str] = {}
        self._percent: int | None = None
        self._remaining: int | None = None

    @property
    def has_metrics(self) -> bool:
        return bool(self._metrics)

    def add(self, report: ProgressReport) -> bool:
        """Returns whether the status has changed."""
        before = self.status
        if report.is_last and report.percent is None and not report.metrics:
            is_new = before is not None and not self.is_over and self._rank in (None, report.rank)
            self.is_over = self.is_over or is_new
            return is_new
        if report.source == ENDPOINT:
            self._reported = report.time
            self._percent, self._remaining, self._metrics = report.percent, report.remaining, dict(report.metrics)
        elif not self._is_of_job(report):
            return False
        else:
            if report.percent is not None:
                self._percent, self._remaining = report.percent, report.remaining
            self._metrics = merged_metrics(self._metrics, report.metrics.items())
        self.is_over = report.is_last
        self.status = trainer_status(
            self._percent, self._remaining, self._metrics, to_rfc3339(report.updated or report.time)
        )
        return self.status != before

    def note_other_writer(self, now: datetime) -> None:
        """Another replica has written the status: a program reports to it, so its log does not count."""
        self._reported = now

    def _is_of_job(self, report: ProgressReport) -> bool:
        """Of the replicas whose logs report something, the first one speaks for the job."""
        if self._reported is not None and report.time - self._reported < _ENDPOINT_COUNTS_FOR:
            return False
        if self._rank is not None and report.rank > self._rank:
            return False
        if self._rank is not None and report.rank < self._rank:
            self._metrics, self._percent, self._remaining = {}, None, None
        self._rank = report.rank
        return True
