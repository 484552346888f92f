"""Writes the progress that trainings report into their jobs: at most once in five seconds each.

The same controller runs on the plane and on a cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

import orjson

from torchyard.api import progress
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS
from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.trainjob import names as trainjobs
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.controllers.trainjob import TRAINJOBS
from torchyard.core.progress.job_progress import JobProgress
from torchyard.core.progress.reports import JobReference, ProgressReport
from torchyard.core.progress.schedule import WriteSchedule
from torchyard.core.progress.trainer_status import FIELDS, progress_text
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

RESOURCES: Mapping[str, GroupVersionResource] = {
    "Job": JOBS,
    jobsets.KIND: JOBSETS,
    pytorchjobs.KIND: PYTORCHJOBS,
    trainjobs.KIND: TRAINJOBS,
}
_TICK_SECONDS, _CLEANUP_SECONDS = 0.25, 60.0
_MAX_WRITES = 8  # at the same time
_JobKey = tuple[str, str, str]  # kind, namespace, name


class ProgressController:
    """`observe` reports; `run` until cancelled. `jobsets` tells which JobSets are those of TrainJobs."""

    def __init__(self, client: Client, jobset_cache: Informer | None) -> None:
        self._client, self._jobsets = client, jobset_cache
        self._jobs: dict[_JobKey, JobProgress] = {}
        self._schedule: WriteSchedule[_JobKey] = WriteSchedule()
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(_MAX_WRITES)
        self.writes = 0

    def observe(self, report: ProgressReport) -> None:
        key = self._key(report.job)
        if key is None:
            return
        job = self._jobs.get(key)
        if job is None:
            if report.is_last and not report.metrics and report.percent is None:
                return
            job = self._jobs[key] = JobProgress()
        if job.add(report):
            self._schedule.offer(key, time.monotonic(), is_last=report.is_last)
            self._changed.set()

    def _key(self, job: JobReference) -> _JobKey | None:
        """The job that shows the progress: of a JobSet that belongs to a TrainJob, the TrainJob."""
        if job.kind == jobsets.KIND:
            if self._jobsets is None:
                return None
            jobset = self._jobsets.get(job.namespace, job.name)
            owners = (jobset or {}).get("metadata", {}).get("ownerReferences") or ()
            if any(owner.get("controller") and owner["kind"] == trainjobs.KIND for owner in owners):
                return trainjobs.KIND, job.namespace, job.name
        return job.kind, job.namespace, job.name

    async def run(self) -> None:
        cleanup = time.monotonic() + _CLEANUP_SECONDS
        while True:
            if self._schedule.is_idle():
                self._changed.clear()
                await self._changed.wait()
            due = self._schedule.due(time.monotonic())
            if due:
                await asyncio.gather(*(self._write(key) for key in due))
            if time.monotonic() > cleanup:
                cleanup = time.monotonic() + _CLEANUP_SECONDS
                for key in self._schedule.idle_keys(time.monotonic()):
                    self._forget(key)
            await asyncio.sleep(_TICK_SECONDS)

    def _forget(self, key: _JobKey) -> None:
        self._schedule.forget(key)
        self._jobs.pop(key, None)

    async def _write(self, key: _JobKey) -> None:
        kind, namespace, name = key
        job = self._jobs.get(key)
        if job is None or job.status is None:
            return
        resource, patch = RESOURCES[kind], _patch(kind, job.status, progress_text(job.status, is_over=job.is_over))
        try:
            async with self._slots:
                if not job.is_compared and not await self._is_newer(resource, key, job):
                    return
                subresource = "status" if kind == trainjobs.KIND else ""
                await self._client.patch(resource, name, patch, namespace, subresource=subresource)
                self.writes += 1
        except StatusError as error:
            if error.status == 404:
                self._forget(key)
                return
            log.warning("progress not written: kind=%s name=%s/%s error=%s", kind, namespace, name, error)
        except YardError as error:  # the server is not reachable; the next report is written
            log.warning("progress not written: kind=%s name=%s/%s error=%s", kind, namespace, name, error)

    async def _is_newer(self, resource: GroupVersionResource, key: _JobKey, job: JobProgress) -> bool:
        """Whether the job shows an older report. After a restart, the same logs are read again."""
        assert job.status is not None
        _, namespace, name = key
        shown = progress.trainer_status_of(await self._client.get(resource, name, namespace)) or {}
        job.is_compared = True
        return str(shown.get("lastUpdatedTime") or "") < str(job.status["lastUpdatedTime"])


def _patch(kind: str, status: Object, text: str) -> Object:
    if kind == trainjobs.KIND:
        # A merge keeps what it does not name.
        fields = {field: status.get(field) for field in FIELDS}
        return {"status": {progress.TRAINER_STATUS: fields, progress.TEXT_FIELD: text}}
    written = orjson.dumps(status).decode()
    annotations = {progress.STATUS_ANNOTATION: written, progress.TEXT_ANNOTATION: text}
    return {"metadata": {"annotations": annotations}}
