"""Exports one trace for every job that ends, by OTLP over HTTP, if OpenTelemetry's variables name an endpoint.

The SDK is not needed: a trace is one JSON document, sent when the job has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import orjson

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.core.progress.reports import ProgressReport
from torchyard.core.run.state import has_controller, pods_of, run_state
from torchyard.core.run.trace import job_spans, otlp_request
from torchyard.core.samples.table import SampledJob
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

_TRIES, _RETRY_SECONDS, _TIMEOUT_SECONDS = 3, 5.0, 10.0
_MAX_WAITING = 1000
_MAX_FIRST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    endpoint: str  # of traces
    headers: Mapping[str, str]
    service: str = "torchyard"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> OtlpSettings | None:
        """None without an endpoint. Raises `YardError` for a value that cannot be honoured."""
        endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
        if not endpoint and (base := environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")):
            endpoint = f"{base.rstrip('/')}/v1/traces"
        if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        if protocol not in ("", "http/json", "http/protobuf"):
            raise YardError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r} is not supported, traces are sent by HTTP",
                hint="use the collector's HTTP port, usually 4318, and http/json",
            )
        if urlsplit(endpoint).scheme not in ("http", "https"):
            raise YardError(f"OTEL_EXPORTER_OTLP_ENDPOINT: {endpoint!r} is not a URL", hint="use http://HOST:4318")
        pairs = (pair.partition("=") for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if pair)
        headers = {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
        return cls(endpoint, headers, environ.get("OTEL_SERVICE_NAME") or "torchyard")


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
        self._first_steps: dict[SampledJob, datetime] = {}
        self._waiting: asyncio.Queue[EndedJob] = asyncio.Queue(_MAX_WAITING)

    def follow(self, caches: Mapping[str, Sequence[Informer]]) -> None:
        for kind, kind_caches in caches.items():
            for cache in kind_caches:
                cache.on_change(partial(self._job_changed, kind))

    def observe(self, report: ProgressReport) -> None:
        job = SampledJob(report.job.namespace, report.job.kind, report.job.name)
        if report.metrics and job not in self._first_steps and len(self._first_steps) < _MAX_FIRST_STEPS:
            self._first_steps[job] = report.time

    async def run(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                pods = await self._list_pods(job.object)
            except YardError as error:
                log.warning("trace without pods: job=%s error=%r", job.object["metadata"]["name"], error.message)
                pods = []
            spans = job_spans(job.object, pods, job.ended, job.first_step)
            await self._send(otlp_request(job.object["metadata"]["uid"], spans, self._settings.service))

    def _job_changed(self, kind: str, change: str, job: Object, before: Object | None) -> None:
        if before is None or change == "DELETED" or has_controller(job):
            return
        obj, metadata = {**job, "kind": kind}, job["metadata"]
        if not run_state(obj).done or run_state({**before, "kind": kind}).done or not self._leads():
            return
        kinds = (kind, "JobSet") if kind == "TrainJob" else (kind,)  # whose JobSet has its name
        keys = [SampledJob(metadata["namespace"], name, metadata["name"]) for name in kinds]
        steps = [self._first_steps.pop(key) for key in keys if key in self._first_steps]
        try:
            self._waiting.put_nowait(EndedJob(obj, self._clock(), min(steps, default=None)))
        except asyncio.QueueFull:
            log.warning("trace dropped: job=%s reason=%r", metadata["name"], "too many traces wait for the collector")

    async def _list_pods(self, job: Object) -> list[Object]:
        metadata = job["metadata"]
        labels = f"{JOBSET_NAME}={metadata['name']}" if job["kind"] == "JobSet" else pods_of(job)[0]
        return (await self._client.list(PODS, metadata["namespace"], labels=labels)).items

    async def _send(self, request: Object) -> None:
        for attempt in range(_TRIES):
            try:
                await asyncio.to_thread(_post, self._settings, orjson.dumps(request))
            except OSError as error:
                status = getattr(error, "code", 500)  # of an answer
                is_final = status < 500 and status != 429
                if is_final or attempt + 1 == _TRIES:
                    log.warning("trace not exported: endpoint=%s error=%r", self._settings.endpoint, str(error))
                    return
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return


def _post(settings: OtlpSettings, body: bytes) -> None:
    from urllib.request import Request, urlopen  # loads much that only this function needs

    headers = {**settings.headers, "Content-Type": "application/json"}
    request = Request(settings.endpoint, body, headers, method="POST")  # noqa: S310 - the scheme was checked
    with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
        response.read()
