"""The controller that writes progress, with a client that records what it is asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import orjson

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.progress import ProgressController
from torchyard.core.progress.reports import ENDPOINT, LOG, JobReference, ProgressReport
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REPORT = ProgressReport(JobReference("Job", "ns", "a"), "a-0", 0, NOW, LOG, 10, None, {"loss": "0.5"})


class Recorder:
    def __init__(self, shown: Object | None = None, error: StatusError | None = None) -> None:
        self.patches: list[tuple[str, str, Object]] = []
        self.written = asyncio.Event()
        self.shown, self.error = shown or {"metadata": {}}, error

    async def get(self, _ref: GroupVersionResource, _name: str, _namespace: str) -> Object:
        self.written.set()
        if self.error is not None:
            raise self.error
        return self.shown

    async def patch(self, ref: GroupVersionResource, _name: str, patch: Object, _namespace: str, **more: Any) -> None:
        self.patches.append((ref.plural, more.get("subresource", ""), patch))


class OneJobSet:
    """Stands for the cache: a JobSet that belongs to a TrainJob."""

    def get(self, namespace: str, name: str) -> Object:
        owner = {"kind": "TrainJob", "name": name, "controller": True}
        return {"metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]}}


async def written(client: Recorder, *reports: ProgressReport) -> list[tuple[str, str, Object]]:
    """What is written of these reports, which come together."""
    controller = ProgressController(cast("Client", client), cast("Informer", OneJobSet()))
    for report in reports:
        controller.observe(report)
    task = asyncio.create_task(controller.run())
    await client.written.wait()
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return client.patches


async def test_jobs_have_their_progress_in_annotations_written_once() -> None:
    last = replace(REPORT, percent=20)
    [(plural, subresource, patch)] = await written(Recorder(), REPORT, last)
    assert (plural, subresource) == ("jobs", "")
    annotations = patch["metadata"]["annotations"]
    assert annotations["torchyard.dev/progress"] == "20%, loss 0.5"
    assert orjson.loads(annotations["torchyard.dev/trainer-status"])["progressPercentage"] == 20


async def test_reports_of_a_train_job_and_of_its_pods_are_in_its_status() -> None:
    posted = replace(REPORT, job=JobReference("TrainJob", "ns", "a"), source=ENDPOINT, percent=30)
    logged = replace(REPORT, job=JobReference("JobSet", "ns", "a"))
    [(plural, subresource, patch)] = await written(Recorder(), posted, logged)
    assert (plural, subresource) == ("trainjobs", "status")
    assert patch["status"]["trainerStatus"]["progressPercentage"] == 30
    assert patch["status"]["trainerStatus"]["estimatedRemainingSeconds"] is None


async def test_a_report_that_the_job_shows_already_is_not_written_again() -> None:
    shown = orjson.dumps({"lastUpdatedTime": "2026-01-01T00:00:00Z"}).decode()
    assert await written(Recorder({"metadata": {"annotations": {"torchyard.dev/trainer-status": shown}}}), REPORT) == []


async def test_a_job_that_is_gone_is_forgotten() -> None:
    assert await written(Recorder(error=StatusError(404, "NotFound", "gone")), REPORT) == []
    assert await written(Recorder(error=StatusError(500, "InternalError", "broken")), REPORT) == []
