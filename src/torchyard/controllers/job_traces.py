"""Exports one trace for every job that ends, by OTLP over HTTP, if OpenTelemetry's variables name an endpoint.

The SDK is not needed: a trace is one JSON document, sent when the job has ended.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
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
from torchyard.api.times import parse_rfc3339
from torchyard.core.progress.reports import JobReference, ProgressReport
from torchyard.core.run.state import has_controller, pods_of, run_state
from torchyard.core.run.trace import job_spans, otlp_request
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

_TRIES, _RETRY_SECONDS = 3, 5.0
_PREFIX = "OTEL_EXPORTER_OTLP_"
_MAX_WAITING = 1000
_MAX_FIRST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    endpoint: str  # of traces
    headers: Mapping[str, str]
    service: str = "torchyard"
    timeout: float = 10.0  # seconds
    certificate: str = ""  # a file of CA certificates; empty for the system's

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> OtlpSettings | None:
        """None without an endpoint. Raises `YardError` for a value that cannot be honoured."""
        endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
        if not endpoint and (base := environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")):
            endpoint = f"{base.rstrip('/')}/v1/traces"
        if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not _is_enabled(environ):
            return None
        _, protocol = _value(environ, "PROTOCOL")
        if protocol not in ("", "http/json", "http/protobuf"):
            raise YardError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r} is not supported, traces are sent by HTTP",
                hint="use the collector's HTTP port, usually 4318, and http/json",
            )
        if urlsplit(endpoint).scheme not in ("http", "https"):
            raise YardError(f"OTEL_EXPORTER_OTLP_ENDPOINT: {endpoint!r} is not a URL", hint="use http://HOST:4318")
        pairs = (pair.partition("=") for pair in _value(environ, "HEADERS")[1].split(",") if pair)
        headers = {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
        service = environ.get("OTEL_SERVICE_NAME") or "torchyard"
        return cls(endpoint, headers, service, _timeout(environ), _certificate(environ))


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable for traces, or else the one for all signals: its name and its value."""
    variables = (f"{_PREFIX}TRACES_{name}", f"{_PREFIX}{name}")
    return next(((variable, environ[variable]) for variable in variables if environ.get(variable)), (variables[1], ""))


def _is_enabled(environ: Mapping[str, str]) -> bool:
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if exporters - {"otlp", "none"}:
        raise YardError(
            f"OTEL_TRACES_EXPORTER: {environ['OTEL_TRACES_EXPORTER']!r} is not supported", hint="use otlp or none"
        )
    return exporters in (set(), {"otlp"})


def _timeout(environ: Mapping[str, str]) -> float:
    variable, text = _value(environ, "TIMEOUT")
    if not text:
        return 10.0
    if not text.isdecimal() or not 0 < int(text[:12]) <= 3_600_000:
        raise YardError(
            f"{variable}: {text!r} is not a number of milliseconds up to an hour", hint="use for example 10000"
        )
    return int(text) / 1000


def _certificate(environ: Mapping[str, str]) -> str:
    """Loaded once here, so that a wrong file is an error of the start and not of each trace."""
    variable, path = _value(environ, "CERTIFICATE")
    if path:
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            hint = "name a file of CA certificates in PEM format"
            raise YardError(f"{variable}: {path!r} cannot be loaded: {error}", hint=hint) from error
    return path


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
        from http.client import HTTPException  # as in `_post`

        for attempt in range(_TRIES):
            try:
                await asyncio.to_thread(_post, self._settings, orjson.dumps(request))
            except (OSError, HTTPException, ValueError) as error:  # the last ones: not HTTP, not a valid URL or header
                status = getattr(error, "code", 500)  # of an answer
                is_final = (status < 500 and status != 429) or isinstance(error, ValueError)
                if is_final or attempt + 1 == _TRIES:
                    log.warning("trace not exported: endpoint=%s error=%r", self._settings.endpoint, str(error))
                    return
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return


def _is_of_trainjob(job: Object) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["kind"] == "TrainJob" for owner in owners)


def _post(settings: OtlpSettings, body: bytes) -> None:
    from urllib.request import Request, urlopen  # loads much that only this function needs

    headers = {**settings.headers, "Content-Type": "application/json"}
    request = Request(settings.endpoint, body, headers, method="POST")  # noqa: S310 - the scheme was checked
    context = ssl.create_default_context(cafile=settings.certificate) if settings.certificate else None
    with urlopen(request, timeout=settings.timeout, context=context) as response:  # noqa: S310
        response.read()
