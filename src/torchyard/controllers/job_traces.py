"""Exports one trace for every job that ends, by OTLP over HTTP, if OpenTelemetry's variables name an endpoint.

The SDK is not needed: a trace is one JSON document, sent when the job has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import orjson

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.controllers.otlp import ExportError, OtlpSettings, post
from torchyard.core.progress.reports import JobReference, ProgressReport
from torchyard.core.run.state import has_controller, pods_of, run_state
from torchyard.core.run.trace import job_spans, otlp_request
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

_TRIES, _RETRY_SECONDS = 3, 5.0
_MAX_WAITING = 1000
_MAX_FIRST_STEPS = 10_000


class EndedJob(NamedTuple):
    object: Object
    ended: datetime
    first_step: datetime | None


class JobTraceExporter:
    """`follow` the caches of jobs, `observe` reports of progress, `run` until cancelled.

    Jobs that had ended before it started are not exported. Pods are listed when a job has ended: a cache of all pods
    would cost a cluster's operator more than the traces are worth.
    """

    def __init__(
        self,
        client: Client,
        settings: OtlpSettings,
        *,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._settings, self._leads, self._clock = client, settings, leads, clock
        self._first_steps: dict[JobReference, datetime] = {}  # the oldest first
        self._waiting: asyncio.Queue[EndedJob] = asyncio.Queue(_MAX_WAITING)

    def follow(self, caches: Mapping[str, Sequence[Informer]]) -> None:
        for kind, kind_caches in caches.items():
            for cache in kind_caches:
                cache.on_change(partial(self._job_changed, kind))

    def observe(self, report: ProgressReport) -> None:
        if not report.metrics or report.job in self._first_steps:
            return
        self._first_steps[report.job] = report.time
        if len(self._first_steps) > _MAX_FIRST_STEPS:
            del self._first_steps[next(iter(self._first_steps))]

    async def run(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await self._export(job)
            except Exception:  # one job's trace must not keep the others from being exported
                log.exception("trace not exported: job=%s", job.object["metadata"]["name"])

    async def _export(self, job: EndedJob) -> None:
        try:
            pods = await self._list_pods(job.object)
        except YardError as error:
            log.warning("trace without pods: job=%s error=%r", job.object["metadata"]["name"], error.message)
            pods = []
        spans = job_spans(job.object, pods, job.ended, job.first_step)
        await self._send(otlp_request(job.object["metadata"]["uid"], spans, self._settings.service))

    def _job_changed(self, kind: str, change: str, job: Object, before: Object | None) -> None:
        obj, metadata = {**job, "kind": kind}, job["metadata"]
        if before is None:
            return
        has_ended = run_state(obj).done and not run_state({**before, "kind": kind}).done
        if change != "DELETED" and not has_ended:
            return
        # The first step of a JobSet is that of the TrainJob that controls it, which ends later.
        first_step = None if kind == "JobSet" and _is_of_trainjob(job) else self._take_first_step(kind, job)
        if change == "DELETED" or has_controller(job) or not self._leads():
            return
        try:
            self._waiting.put_nowait(EndedJob(obj, self._clock(), first_step))
        except asyncio.QueueFull:
            log.warning("trace dropped: job=%s reason=%r", metadata["name"], "too many traces wait for the collector")

    def _take_first_step(self, kind: str, job: Object) -> datetime | None:
        """The time of the first step, which is forgotten."""
        metadata = job["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        keys = [JobReference(kind, namespace, name, uid) for uid in (metadata["uid"], "")]
        if kind == "TrainJob":  # whose JobSet has its name, and a uid of its own
            place = ("JobSet", namespace, name)
            keys += [key for key in self._first_steps if (key.kind, key.namespace, key.name) == place]
        steps = [self._first_steps.pop(key) for key in keys if key in self._first_steps]
        created = parse_rfc3339(metadata["creationTimestamp"])
        return min((step for step in steps if step >= created), default=None)  # an older one is of another run

    async def _list_pods(self, job: Object) -> list[Object]:
        metadata = job["metadata"]
        labels = f"{JOBSET_NAME}={metadata['name']}" if job["kind"] == "JobSet" else pods_of(job)[0]
        return (await self._client.list(PODS, metadata["namespace"], labels=labels)).items

    async def _send(self, request: Object) -> None:
        body = orjson.dumps(request)
        for attempt in range(_TRIES):
            try:
                rejected = await asyncio.to_thread(post, self._settings, body)
            except ExportError as error:
                if error.is_final or attempt + 1 == _TRIES:
                    log.warning("trace not exported: endpoint=%s error=%r", self._settings.endpoint, str(error))
                    return
                await asyncio.sleep(error.retry_after if error.retry_after is not None else _RETRY_SECONDS)
            else:
                if rejected:
                    log.warning("trace not accepted: endpoint=%s error=%r", self._settings.endpoint, rejected)
                return


def _is_of_trainjob(job: Object) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["kind"] == "TrainJob" for owner in owners)
