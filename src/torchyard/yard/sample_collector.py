"""Records what the replicas of jobs use and report, and saves the samples."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

from torchyard.apiserver.registry.registry import Registry
from torchyard.core.progress.reports import ProgressReport
from torchyard.core.run.state import short_name
from torchyard.core.samples.table import SampledJob, SampleTable
from torchyard.core.samples.usage import record_usage
from torchyard.yard.sample_store import SampleStore, take_changes

_USAGE_SECONDS = 10.0
_SAVE_EVERY = 3  # measurements


class SampleCollector:
    """`run` until cancelled, which saves what was not saved. `table` has the samples."""

    def __init__(
        self, registry: Registry, store: SampleStore, *, keep: timedelta, clock: Callable[[], float] = time.time
    ) -> None:
        self._registry, self._store, self._keep, self._clock = registry, store, keep, clock
        self.table = SampleTable()
        registry.progress.subscribe(self.record_report)

    async def run(self) -> None:
        self.table = await asyncio.to_thread(self._store.load)
        try:
            while True:
                for _ in range(_SAVE_EVERY):
                    await asyncio.sleep(_USAGE_SECONDS)
                    self.measure()
                self.table.remove_older(self._clock() - self._keep.total_seconds())
                await asyncio.to_thread(self._store.save, *take_changes(self.table))
        finally:
            self._store.save(*take_changes(self.table))

    def record_report(self, report: ProgressReport) -> None:
        """Record what a training printed or reported about itself."""
        job, time = report.job, report.time.timestamp()
        sampled = SampledJob(job.namespace, job.kind, job.name)
        replica = short_name(report.replica, job.name)
        for name, value in report.samples():
            self.table.record(sampled, replica, name, time, value)
        if report.percent is not None:
            self.table.record(sampled, replica, "progress", time, float(report.percent), unit="percent")

    def measure(self) -> None:
        usage = self._registry.usage
        if usage is None:
            return
        now = self._clock()
        for pod in usage.usage_metrics("pods"):
            record_usage(self.table, pod, now)
