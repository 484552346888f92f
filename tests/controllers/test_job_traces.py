"""One trace for every job that ends, as a collector receives it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.api.errors import YardError
from torchyard.controllers import job_traces
from torchyard.controllers.job_traces import EndedJob, JobTraceExporter
from torchyard.controllers.otlp import OtlpSettings
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport
from torchyard.core.run.trace import job_spans, otlp_request
from torchyard.kube.client import Client, ObjectList
from torchyard.kube.informer import Informer

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)


def at(seconds: int) -> str:
    return f"2026-01-01T12:{seconds // 60:02}:{seconds % 60:02}Z"


def job(*conditions: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "mnist", "namespace": "team", "uid": "u-1", "creationTimestamp": at(0)}
    status = {"conditions": list(conditions), "completionTime": at(300)}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": {}, "status": status}


RESUMED = {"type": "Suspended", "status": "False", "lastTransitionTime": at(60)}
SUCCEEDED = {"type": "Succeeded", "status": "True", "lastTransitionTime": at(300)}
FAILED = {"type": "Failed", "status": "True", "lastTransitionTime": at(300), "message": "worker-0 failed"}


def pod(code: int = 0) -> dict[str, Any]:
    ended = {"startedAt": at(80), "finishedAt": at(290), "exitCode": code, "reason": "Error" if code else "Completed"}
    return {
        "metadata": {"name": "mnist-worker-0", "namespace": "team", "uid": "p", "creationTimestamp": at(61)},
        "spec": {"containers": [{"name": "pytorch"}], "nodeName": "node-1"},
        "status": {
            "phase": "Failed" if code else "Succeeded",
            "startTime": at(70),
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(65)}],
            "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}],
        },
    }


def seconds(span: Any) -> tuple[str, int, int]:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return span.name, int((span.start - start).total_seconds()), int((span.end - start).total_seconds())


def test_the_phases_of_a_job_follow_each_other() -> None:
    first_step = datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)
    spans = job_spans(job(RESUMED, SUCCEEDED), [pod()], NOW, first_step)
    assert [seconds(span) for span in spans] == [
        ("PyTorchJob mnist", 0, 300),
        ("queued", 0, 60),
        ("create pods", 60, 61),
        ("schedule", 61, 65),
        ("pull images and start", 65, 80),
        ("first step", 80, 90),
        ("train", 90, 300),
        ("replica worker-0", 70, 290),
    ]
    assert spans[-1].attributes == {"k8s.pod.name": "mnist-worker-0", "k8s.node.name": "node-1", "process.exit.code": 0}


def test_unknown_phases_are_left_out_and_failures_are_errors() -> None:
    spans = job_spans(job(FAILED), [pod(3)], NOW)
    assert [span.name for span in spans if span.name in ("queued", "first step")] == []
    assert spans[0].error == "worker-0 failed" and spans[-1].error == "Error"
    assert [seconds(span) for span in job_spans(job(SUCCEEDED), [], NOW)] == [
        ("PyTorchJob mnist", 0, 300),
        ("train", 0, 300),
    ]


def test_a_trace_has_the_same_ids_whenever_it_is_built() -> None:
    spans = job_spans(job(SUCCEEDED), [pod()], NOW)
    request = otlp_request("u-1", spans, "torchyard")
    assert request == otlp_request("u-1", spans, "torchyard") != otlp_request("u-2", spans, "torchyard")
    root, *children = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert "parentSpanId" not in root and {child["parentSpanId"] for child in children} == {root["spanId"]}
    assert len(root["traceId"]) == 32 and len({child["spanId"] for child in children}) == len(children)
    assert root["startTimeUnixNano"] == "1767268800000000000" and root["status"] == {"code": 1}


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c/x"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "otlp"}, "http://c:4318/v1/traces"),
    ],
)
def test_the_endpoint_is_that_of_the_variables(environ: dict[str, str], endpoint: str | None) -> None:
    settings = OtlpSettings.from_environment(environ)
    assert (settings and settings.endpoint) == endpoint


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4318"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "file:///etc/passwd"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "\u00b2"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "1".rjust(5000, "0")},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:4318", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/missing.pem"},
    ],
)
def test_what_cannot_be_honoured_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(YardError, match="OTEL_"):
        OtlpSettings.from_environment(environ)


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """An HTTP server, and the key and body of each request that it got."""
    received: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append((self.headers["Api-Key"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


class Pods(Client):
    def __init__(self) -> None:
        self.selectors: list[str] = []

    async def list(self, *_: Any, labels: str = "", **__: Any) -> ObjectList:
        self.selectors.append(labels)
        return ObjectList([pod()], "")


async def test_a_job_is_exported_once_when_it_ends(collector: tuple[str, list[tuple[str, dict[str, Any]]]]) -> None:
    url, received = collector
    settings = OtlpSettings.from_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b", "OTEL_SERVICE_NAME": "lab"}
    )
    assert settings is not None
    client, observers = Pods(), list[Any]()
    exporter = JobTraceExporter(client, settings, clock=lambda: NOW)
    exporter.follow({"PyTorchJob": [cast(Informer, SimpleNamespace(on_change=observers.append))]})
    reference, time = JobReference("PyTorchJob", "team", "mnist"), datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)
    exporter.observe(ProgressReport(reference, "mnist-worker-0", 0, time, LOG, metrics={"loss": "1"}))
    running, ended = job(), job(SUCCEEDED)
    for change, after, before in (
        ("ADDED", ended, None),  # ended before we started
        ("MODIFIED", running, running),
        ("MODIFIED", ended, running),
        ("MODIFIED", ended, ended),
        ("DELETED", ended, ended),
    ):
        observers[0](change, after, before)
    task = asyncio.create_task(exporter.run())
    async with asyncio.timeout(30):
        while not received:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    ((key, body),) = received
    assert key == "a b" and client.selectors == ["training.kubeflow.org/job-name=mnist"]
    resource = body["resourceSpans"][0]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "lab"}}]
    assert "first step" in {span["name"] for span in resource["scopeSpans"][0]["spans"]}


def test_the_variables_of_traces_come_before_those_of_all_signals() -> None:
    variables = {"ENDPOINT": "http://c:4318", "TIMEOUT": "5000", "HEADERS": "a=1", "TRACES_HEADERS": "b=2"}
    settings = OtlpSettings.from_environment({f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()})
    assert settings is not None and (settings.headers, settings.timeout) == ({"b": "2"}, 5.0)


def exporter_of(endpoint: str) -> JobTraceExporter:
    return JobTraceExporter(Pods(), OtlpSettings(endpoint, {}), clock=lambda: NOW)


def report(reference: JobReference, time: datetime = NOW) -> ProgressReport:
    return ProgressReport(reference, "a-0", 0, time, LOG, metrics={"loss": "1"})


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:nonnumeric", "http://[", "http://127.0.0.1:1/\x00"])
async def test_an_endpoint_that_is_no_url_does_not_end_the_exporter(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    await exporter_of(endpoint)._send({})
    assert caplog.text.count("trace not exported") == 1


async def test_a_job_whose_trace_cannot_be_built_does_not_keep_others_from_being_exported(
    collector: tuple[str, list[tuple[str, dict[str, Any]]]], caplog: pytest.LogCaptureFixture
) -> None:
    url, received = collector
    exporter = exporter_of(url)
    broken = job(SUCCEEDED)
    broken["metadata"]["creationTimestamp"] = "unknown"
    for each in (broken, job(SUCCEEDED)):
        exporter._waiting.put_nowait(EndedJob(each, NOW, None))
    task = asyncio.create_task(exporter.run())
    async with asyncio.timeout(30):
        while not received:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert "trace not exported: job=mnist" in caplog.text


def test_the_first_steps_of_jobs_that_end_are_forgotten_and_of_many_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = exporter_of("http://c:4318")
    owner = {"ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "o", "controller": True}]}
    ended, active = job(SUCCEEDED), job()
    reference = JobReference("PyTorchJob", "team", "mnist", "u-1")
    for change, metadata in (("MODIFIED", owner), ("DELETED", {})):
        exporter.observe(report(reference))
        exporter._job_changed("PyTorchJob", change, {**ended, "metadata": ended["metadata"] | metadata}, active)
        assert exporter._first_steps == {} and exporter._waiting.empty()
    monkeypatch.setattr(job_traces, "_MAX_FIRST_STEPS", 2)
    for name in ("a", "b", "c"):
        exporter.observe(report(JobReference("Job", "team", name)))
    assert [key.name for key in exporter._first_steps] == ["b", "c"]


def test_the_first_step_is_that_of_the_run_and_of_a_train_job_that_of_its_job_set() -> None:
    exporter = exporter_of("http://c:4318")
    exporter.observe(report(JobReference("PyTorchJob", "team", "mnist", "old"), NOW - timedelta(minutes=5)))
    exporter.observe(report(JobReference("PyTorchJob", "team", "mnist", "u-1")))
    assert exporter._take_first_step("PyTorchJob", job()) == NOW
    exporter.observe(report(JobReference("JobSet", "team", "mnist", "old"), NOW - timedelta(days=1)))
    exporter.observe(report(JobReference("JobSet", "team", "mnist", "js")))
    jobset = job(SUCCEEDED)
    jobset["metadata"]["ownerReferences"] = [{"kind": "TrainJob", "name": "mnist", "uid": "u", "controller": True}]
    jobset["status"] = {"terminalState": "Completed", "conditions": [{"type": "Completed", "status": "True"}]}
    exporter._job_changed("JobSet", "MODIFIED", jobset, job())
    assert exporter._take_first_step("TrainJob", job()) == NOW
