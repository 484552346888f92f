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
from torchyard.kube.sample_store import SampleStore, save_all, save_some

_USAGE_SECONDS = 10.0
_SAVE_EVERY = 3  # measurements


class SampleCollector:
    """`run` until cancelled, which saves what was not saved. `table` has the samples."""

    def __init__(
        self, registry: Registry, store: SampleStore, *, keep: timedelta, clock: Callable[[], float] = time.time
    ) -> None:
        self._registry, self._store, self._keep, self._clock = registry, store, keep, clock
        self.table = SampleTable()
        self._is_loaded = False
        registry.progress.subscribe(self.record_report)

    async def run(self) -> None:
        if not self._is_loaded:  # not after an error: the table has what the file has, and more
            self.table = await asyncio.to_thread(self._store.load)
            self._is_loaded = True
        try:
            while True:
                for _ in range(_SAVE_EVERY):
                    await asyncio.sleep(_USAGE_SECONDS)
                    self.measure()
                self.table.remove_older(self._clock() - self._keep.total_seconds())
                await self.save()
        finally:
            save_all(self._store, self.table)

    async def save(self) -> None:
        """Save a part of what has changed."""
        await save_some(self._store, self.table)

    def record_report(self, report: ProgressReport) -> None:
        """Record what a training printed or reported about itself."""
        samples = [(name, value, "") for name, value in report.samples()]
        if report.percent is not None:
            samples.append(("progress", float(report.percent), "percent"))
        job = report.job
        sampled = SampledJob(job.namespace, job.kind, job.name)
        if not samples or not self.table.accept_run(sampled, job.uid):
            return
        # A sample of the future would keep all later ones from being recorded.
        time = min(report.time.timestamp(), self._clock())
        replica = short_name(report.replica, job.name)
        for name, value, unit in samples:
            self.table.record(sampled, replica, name, time, value, unit=unit)

    def measure(self) -> None:
        usage = self._registry.usage
        if usage is None:
            return
        now = self._clock()
        for pod in usage.usage_metrics("pods"):
            record_usage(self.table, pod, now)
