"""Writes the progress that trainings report into their jobs: at most once in five seconds each, and for first metrics.

On a cluster every replica of the operator writes what was reported to it, and reads what the others wrote.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

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


class ProgressController:
    """`observe` reports; `run` until cancelled. The caches have the owners of JobSets, and the uids of TrainJobs.

    `kinds` are those that are written. With `has_peers`, other replicas write the same jobs.
    """

    def __init__(
        self,
        client: Client,
        jobset_cache: Informer | None,
        trainjob_cache: Informer | None = None,
        *,
        kinds: frozenset[str] = frozenset(RESOURCES),
        has_peers: bool = False,
    ) -> None:
        self._client, self._jobsets, self._trainjobs = client, jobset_cache, trainjob_cache
        self._kinds, self._has_peers = kinds, has_peers
        self._jobs: dict[JobReference, JobProgress] = {}
        self._schedule: WriteSchedule[JobReference] = WriteSchedule()
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(_MAX_WRITES)
        self.writes = 0
        if has_peers and trainjob_cache is not None:
            trainjob_cache.on_change(self._trainjob_changed)

    def observe(self, report: ProgressReport) -> None:
        key = self._key(report.job)
        if key is None or key.kind not in self._kinds:
            return
        job = self._jobs.get(key)
        if job is None:
            if report.is_last and not report.metrics and report.percent is None:
                return
            job = self._jobs[key] = JobProgress()
        had_metrics = job.has_metrics
        if job.add(report):
            is_urgent = job.has_metrics and not had_metrics
            self._schedule.offer(key, time.monotonic(), is_last=report.is_last, is_urgent=is_urgent)
            self._changed.set()

    def _trainjob_changed(self, change: str, job: Object, before: Object | None) -> None:
        shown = progress.trainer_status_of(job)
        if change != "MODIFIED" or shown is None or shown == progress.trainer_status_of(before or job):
            return
        metadata = job["metadata"]
        key = JobReference(trainjobs.KIND, metadata["namespace"], metadata["name"], metadata["uid"])
        known = self._jobs.get(key)
        if known is not None and shown.get("lastUpdatedTime") in known.written:
            return
        if known is None:
            known = self._jobs[key] = JobProgress()
        known.note_other_writer(datetime.now(UTC))
        self._schedule.note_written(key, time.monotonic())

    def _key(self, job: JobReference) -> JobReference | None:
        """The job that shows the progress: of a JobSet that belongs to a TrainJob, the TrainJob.

        With its uid: a job that was created again under the same name begins without the progress of the one before.
        """
        if job.kind != jobsets.KIND:
            return job
        if self._jobsets is None:
            return None
        metadata = (self._jobsets.get(job.namespace, job.name) or {}).get("metadata", {})
        if job.uid and metadata.get("uid", job.uid) != job.uid:
            return None  # of a JobSet that is gone
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == trainjobs.KIND:
                return JobReference(trainjobs.KIND, job.namespace, job.name, owner.get("uid", ""))
        return job

    async def run(self) -> None:
        cleanup = time.monotonic() + _CLEANUP_SECONDS
        while True:
            if self._schedule.is_idle():
                self._changed.clear()
                with suppress(TimeoutError):  # jobs that only other replicas write are cleaned up too
                    async with asyncio.timeout(_CLEANUP_SECONDS):
                        await self._changed.wait()
            due = self._schedule.due(time.monotonic())
            if due:
                await asyncio.gather(*(self._write(key) for key in due))
            if time.monotonic() > cleanup:
                cleanup = time.monotonic() + _CLEANUP_SECONDS
                for key in self._schedule.idle_keys(time.monotonic()):
                    self._forget(key)
            await asyncio.sleep(_TICK_SECONDS)

    def _retry(self, key: JobReference, job: JobProgress) -> None:
        """Until then another replica may write the job, so what it shows is compared again."""
        job.is_compared = False
        self._schedule.retry(key, time.monotonic())

    def _forget(self, key: JobReference) -> None:
        self._schedule.forget(key)
        self._jobs.pop(key, None)

    async def _write(self, key: JobReference) -> None:
        """Errors are logged here: one job must not keep the others from being written."""
        job = self._jobs.get(key)
        if job is None or job.status is None:
            return
        try:
            async with self._slots:
                await self._patch_job(key, job, job.status)
        except StatusError as error:
            if error.status == 404:
                self._forget(key)
                return
            if error.status == 422:  # as for a uid that is not the job's; the next report begins anew
                self._forget(key)
            elif error.status in (409, 429) or error.status >= 500:
                self._retry(key, job)
            _log_error(key, error)
        except (YardError, OSError) as error:  # the server is not reachable
            self._retry(key, job)
            _log_error(key, error)
        except Exception:
            self._retry(key, job)  # it may be the last report
            log.exception("progress not written: kind=%s name=%s/%s", key.kind, key.namespace, key.name)

    async def _patch_job(self, key: JobReference, job: JobProgress, status: Object) -> None:
        resource = RESOURCES[key.kind]
        patch = _patch(key, status, progress_text(status, is_over=job.is_over))
        if self._has_peers and self._has_newer(key, status):
            return
        must_compare = not job.is_compared or self._may_be_replaced(key)
        if must_compare and not await self._is_newer(resource, key, job):
            return
        subresource = "status" if key.kind == trainjobs.KIND else ""
        job.written.append(status["lastUpdatedTime"])
        await self._client.patch(resource, key.name, patch, key.namespace, subresource=subresource)
        self.writes += 1

    def _has_newer(self, key: JobReference, status: Object) -> bool:
        """Whether another replica has written a later report."""
        if key.kind != trainjobs.KIND or self._trainjobs is None:
            return False
        shown = progress.trainer_status_of(self._trainjobs.get(key.namespace, key.name) or {"metadata": {}}) or {}
        return str(shown.get("lastUpdatedTime") or "") > str(status["lastUpdatedTime"])

    def _may_be_replaced(self, key: JobReference) -> bool:
        """Whether another TrainJob seems to have the name: a patch of a status ignores the uid that it names."""
        if key.kind != trainjobs.KIND or self._trainjobs is None or not key.uid:
            return False
        cached = self._trainjobs.get(key.namespace, key.name)
        return cached is not None and cached["metadata"]["uid"] != key.uid

    async def _is_newer(self, resource: GroupVersionResource, key: JobReference, job: JobProgress) -> bool:
        """Whether the job shows an older report. After a restart, the same logs are read again.

        The end of a job has the time of its last report, and changes the text.
        """
        assert job.status is not None
        current = await self._client.get(resource, key.name, key.namespace)
        if key.uid and current["metadata"].get("uid", key.uid) != key.uid:
            self._forget(key)  # another job has the name now
            return False
        shown = progress.trainer_status_of(current) or {}
        job.is_compared = True
        shown_time, time_reported = str(shown.get("lastUpdatedTime") or ""), str(job.status["lastUpdatedTime"])
        return shown_time < time_reported or (job.is_over and shown_time == time_reported)


def _log_error(key: JobReference, error: Exception) -> None:
    log.warning("progress not written: kind=%s name=%s/%s error=%s", key.kind, key.namespace, key.name, error)


def _patch(key: JobReference, status: Object, text: str) -> Object:
    """The uid is a condition, except for the patch of a status: another job that has the name now is not changed."""
    metadata: Object = {"uid": key.uid} if key.uid else {}
    if key.kind == trainjobs.KIND:
        # A merge keeps what it does not name.
        fields = {field: status.get(field) for field in FIELDS}
        return {"metadata": metadata, "status": {progress.TRAINER_STATUS: fields, progress.TEXT_FIELD: text}}
    written = orjson.dumps(status).decode()
    metadata["annotations"] = {progress.STATUS_ANNOTATION: written, progress.TEXT_ANNOTATION: text}
    return {"metadata": metadata}
