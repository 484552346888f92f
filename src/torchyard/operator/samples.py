"""The curves of a cluster's jobs: what metrics.k8s.io reports of their pods, and the progress that they show.

Every replica keeps all curves, from what the API server tells each of them, so that any of them can answer and a new
leader continues without a gap. They are in memory; the leader also saves them where there is a directory.

The API server's proxy does not say whose request it forwards. A request names the uid of the job, which only those know
who may read the job, its pods or its events.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from torchyard.api import errors
from torchyard.api.errors import StatusError, YardError
from torchyard.api.objects import Object
from torchyard.api.progress import trainer_status_of
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.samples import PATH
from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.core.progress.trainer_status import metrics_by_name
from torchyard.core.samples.owners import sampled_jobs, sampled_replica
from torchyard.core.samples.table import SampledJob, SampleTable
from torchyard.core.samples.usage import record_usage
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.sample_store import SampleStore, save_some
from torchyard.operator.settings import OperatorSettings

log = logging.getLogger(__name__)

MAX_SERIES = 2000  # of at most 17 KB each: 34 MB
_USAGE_SECONDS = 15.0  # as metrics-server measures
_RETRY_SECONDS = 300.0  # where there is no metrics-server
_SAVE_SECONDS = 60.0
_KEEP_SECONDS = 7 * 86400.0
_FILE = "samples.db"
# The pods of PyTorchJobs, and those of Jobs, to which the ones of JobSets belong.
_SELECTORS = (pytorchjobs.JOB_NAME, "batch.kubernetes.io/job-name")


class OperatorSamples:
    """`follow` the jobs, `run` until cancelled; `app` serves the curves."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._leads, self._clock = client, leads, clock
        self._namespaces, self._has_selector = settings.namespaces or ("",), bool(settings.selector)
        directory = settings.samples_directory
        self._store = (
            SampleStore(directory / _FILE, journal="DELETE", max_series=MAX_SERIES) if directory is not None else None
        )
        self.table = SampleTable(lost_before=clock(), max_series=MAX_SERIES)
        self._caches: dict[str, list[Informer]] = {}

    def follow(self, jobs: Mapping[str, Iterable[Informer]]) -> None:
        """The caches of jobs by kind. What is not in them is not managed by this operator."""
        for kind, caches in jobs.items():
            self._caches[kind] = list(caches)
            for cache in caches:
                cache.on_change(partial(self._record_progress, kind))

    async def load(self) -> None:
        """Read what was saved, before anything is recorded."""
        if self._store is not None:
            loaded = await asyncio.to_thread(self._store.load)
            if len(loaded):
                self.table = loaded

    async def run(self) -> None:
        next_save = self._clock() + _SAVE_SECONDS
        while True:
            is_measured = await self.measure()
            wait_until = self._clock() + (_USAGE_SECONDS if is_measured else _RETRY_SECONDS)
            while self._clock() < wait_until:
                await asyncio.sleep(min(_USAGE_SECONDS, wait_until - self._clock()))
                if self._clock() >= next_save:
                    next_save = self._clock() + _SAVE_SECONDS
                    self.table.remove_older(self._clock() - _KEEP_SECONDS)
                    await self.save()

    async def measure(self) -> bool:
        """Record what pods use; returns whether the cluster measures it."""
        try:
            for namespace in self._namespaces:
                for selector in _SELECTORS:
                    await self._measure(namespace, selector)
        except StatusError as error:
            if error.status in (403, 404, 503):
                return False
            log.warning("usage not read: error=%s", error)
        except YardError as error:
            log.warning("usage not read: error=%s", error)
        return True

    async def _measure(self, namespace: str, selector: str) -> None:
        scope = f"/namespaces/{namespace}" if namespace else ""
        listing = await self._client.raw("GET", f"/apis/metrics.k8s.io/v1beta1{scope}/pods?labelSelector={selector}")
        now = self._clock()
        for metrics in listing.get("items") or ():
            metadata = metrics["metadata"]
            job, _ = sampled_replica(metadata["namespace"], metadata["name"], metadata.get("labels") or {})
            uid = self._uid(job)
            if uid is not None and self.table.has_room(job, now - 3 * _USAGE_SECONDS):
                record_usage(self.table, metrics, now, uid=uid)

    def _uid(self, job: SampledJob) -> str | None:
        """The uid of a job that this operator manages, empty if it is unknown; None for other jobs."""
        caches = self._caches.get(job.kind)
        if caches is None:
            return None if self._has_selector else ""
        obj = next((obj for cache in caches if (obj := cache.get(job.namespace, job.name)) is not None), None)
        return None if obj is None else str(obj["metadata"].get("uid", ""))

    def _record_progress(self, kind: str, change: str, obj: Object, before: Object | None) -> None:
        status = trainer_status_of(obj)
        if change == "DELETED" or status is None or (before is not None and status == trainer_status_of(before)):
            return
        metadata = obj["metadata"]
        job, now = SampledJob(metadata["namespace"], kind, metadata["name"]), self._clock()
        samples = list(_samples_of(status))
        if not samples or not self.table.has_room(job, now - 3 * _USAGE_SECONDS):
            return
        if not self.table.accept_run(job, metadata.get("uid", "")):
            return
        try:
            # A sample of the future would keep all later ones from being recorded.
            reported = min(parse_rfc3339(status["lastUpdatedTime"]).timestamp(), now)
        except (TimeError, KeyError, TypeError):
            return
        for name, value, unit in samples:
            self.table.record(job, "", name, reported, value, unit=unit)

    async def save(self) -> None:
        """Save a part of what has changed, on the leader."""
        if self._store is not None and self._leads():
            await save_some(self._store, self.table)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get(f"{PATH}/{{namespace}}/{{resource}}/{{name}}", self._respond)
        return app

    async def _respond(self, request: web.Request) -> web.Response:
        parts = request.match_info
        try:
            body = self._document(
                parts["namespace"], parts["resource"], parts["name"], request.query.get("uid", ""), request.query
            )
            status = 200
        except StatusError as error:
            body, status = error.body(), error.status
        return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")

    def _document(self, namespace: str, resource: str, name: str, uid: str, query: Mapping[str, str]) -> dict[str, Any]:
        try:
            since = float(query.get("since", "0"))
        except ValueError:
            since = math.nan
        if not math.isfinite(since):
            raise errors.bad_request("since is not a number of seconds since 1970")
        jobs = sampled_jobs(namespace, resource, name)
        # Whether a job exists is not for everyone: a wrong uid and a job without curves have the same answer.
        if not uid or not any(uid == known for job in jobs for known in (self._uid(job), self.table.run_uid(job))):
            raise StatusError(404, "NotFound", "no curves of a job with this name and uid")
        return self.table.document(jobs, since)


def _samples_of(status: Object) -> Iterable[tuple[str, float, str]]:
    """Name, value and unit of each number in a job's progress."""
    percent = status.get("progressPercentage")
    if isinstance(percent, int | float):
        yield "progress", float(percent), "percent"
    for name, text in metrics_by_name(status).items():
        try:
            value = float(text)
        except (TypeError, ValueError):
            continue
        if math.isfinite(value):
            yield name, value, ""
