"""The controller that writes progress, with a client that records what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers import progress
from torchyard.controllers.progress import ProgressController
from torchyard.core.progress import schedule
from torchyard.core.progress.reports import ENDPOINT, LOG, JobReference, ProgressReport
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REPORT = ProgressReport(JobReference("Job", "ns", "a"), "a-0", 0, NOW, LOG, 10, None, {"loss": "0.5"})


class Recorder:
    def __init__(self, shown: Object | None = None, error: Exception | None = None) -> None:
        self.gets: list[str] = []
        self.patches: list[tuple[str, str, Object]] = []
        self.written = asyncio.Event()
        self.shown, self.error = shown or {"metadata": {}}, error
        self.patch_error: Exception | None = None

    async def get(self, _ref: GroupVersionResource, name: str, _namespace: str) -> Object:
        self.gets.append(name)
        self.written.set()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.shown

    async def patch(self, ref: GroupVersionResource, _name: str, patch: Object, _namespace: str, **more: Any) -> None:
        if self.patch_error is not None:
            error, self.patch_error = self.patch_error, None
            raise error
        self.patches.append((ref.plural, more.get("subresource", ""), patch))


class OneJobSet:
    """Stands for the cache: a JobSet that belongs to a TrainJob."""

    def get(self, namespace: str, name: str) -> Object:
        owner = {"kind": "TrainJob", "name": name, "uid": "tj", "controller": True}
        return {"metadata": {"name": name, "namespace": namespace, "uid": "js", "ownerReferences": [owner]}}


@asynccontextmanager
async def running(controller: ProgressController) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def has_patches(client: Recorder, count: int) -> bool:
    return len(client.patches) == count


async def gets(client: Recorder, count: int) -> bool:
    return len(client.gets) == count


async def gone(controller: ProgressController) -> bool:
    return not controller._jobs


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
    posted = replace(REPORT, job=JobReference("TrainJob", "ns", "a", "tj"), source=ENDPOINT, percent=30)
    logged = replace(REPORT, job=JobReference("JobSet", "ns", "a", "js"))
    [(plural, subresource, patch)] = await written(Recorder(), posted, logged)
    assert (plural, subresource) == ("trainjobs", "status")
    assert patch["status"]["trainerStatus"]["progressPercentage"] == 30
    assert patch["status"]["trainerStatus"]["estimatedRemainingSeconds"] is None


async def test_a_report_that_the_job_shows_already_is_not_written_again() -> None:
    assert await written(Recorder(showing("2026-01-01T00:00:00Z")), REPORT) == []


async def test_a_job_that_is_gone_is_forgotten() -> None:
    client = Recorder(error=StatusError(404, "NotFound", "gone"))
    controller = ProgressController(cast("Client", client), None)
    async with running(controller):
        controller.observe(REPORT)
        await first_answer(lambda: gone(controller), "the job is forgotten")
        controller.observe(replace(REPORT, metrics={"accuracy": "1"}))
        await first_answer(lambda: has_patches(client, 1), "the job of that name that was created since")
    [(_, _, patch)] = client.patches
    assert patch["metadata"]["annotations"]["torchyard.dev/progress"] == "10%", "without the metrics of before"


@pytest.mark.parametrize(
    "error", [StatusError(500, "InternalError", "broken"), StatusError(409, "Conflict", "x"), YardError("no server")]
)
async def test_a_report_that_could_not_be_written_is_written_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.0)
    client = Recorder(error=error)
    controller = ProgressController(cast("Client", client), None)
    async with running(controller):
        controller.observe(REPORT)
        await first_answer(lambda: has_patches(client, 1), "the second try")
    assert client.gets == ["a", "a"]


def showing(updated: str) -> Object:
    status = orjson.dumps({"lastUpdatedTime": updated}).decode()
    return {"metadata": {"annotations": {"torchyard.dev/trainer-status": status}}}


async def test_a_write_that_is_tried_again_does_not_replace_what_another_replica_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.0)
    client = Recorder()
    controller = ProgressController(cast("Client", client), None)
    async with running(controller):
        controller.observe(REPORT)
        await first_answer(lambda: has_patches(client, 1))
        client.shown, client.patch_error = showing("2026-01-01T00:05:00Z"), YardError("no server")
        controller.observe(replace(REPORT, percent=20))
        await first_answer(lambda: gets(client, 2), "the comparison before the second try")
        controller.observe(replace(REPORT, job=JobReference("Job", "ns", "last")))
        await first_answer(lambda: gets(client, 3))
    assert len(client.patches) == 1


async def test_the_end_of_a_job_that_could_not_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.0)
    client = Recorder()
    controller = ProgressController(cast("Client", client), None)
    async with running(controller):
        controller.observe(replace(REPORT, remaining=20))
        await first_answer(lambda: has_patches(client, 1))
        client.shown, client.patch_error = showing("2026-01-01T00:00:00Z"), YardError("no server")
        controller.observe(replace(REPORT, percent=None, metrics={}, is_last=True))
        await first_answer(lambda: has_patches(client, 2))
    texts = [patch["metadata"]["annotations"]["torchyard.dev/progress"] for _, _, patch in client.patches]
    assert texts == ["10%, 20s left, loss 0.5", "10%, loss 0.5"]


async def test_a_job_that_cannot_be_written_does_not_keep_others_from_being_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Recorder()
    controller = ProgressController(cast("Client", client), None)
    controller.observe(replace(REPORT, job=JobReference("Job", "ns", "b"), remaining=10**30))
    controller.observe(REPORT)
    async with running(controller):
        await first_answer(lambda: has_patches(client, 1), "the other job")
        controller.observe(replace(REPORT, job=JobReference("Job", "ns", "c")))
        await first_answer(lambda: has_patches(client, 2), "a later one")
    assert "progress not written: kind=Job name=ns/b" in caplog.text


async def test_a_job_that_was_created_again_begins_anew_and_is_not_changed_by_the_reports_of_the_one_before() -> None:
    old = replace(REPORT, job=JobReference("Job", "ns", "a", "old"), percent=90, metrics={"loss": "0.1"})
    new = replace(REPORT, job=JobReference("Job", "ns", "a", "new"), rank=3, percent=None, metrics={"accuracy": "1"})
    client = Recorder(shown={"metadata": {"uid": "new"}})
    controller = ProgressController(cast("Client", client), None)
    controller.observe(old)
    controller.observe(new)
    async with running(controller):
        await first_answer(lambda: has_patches(client, 1), "the new job")
        await first_answer(lambda: gets(client, 2), "both were compared")
    [(_, _, patch)] = client.patches
    assert patch["metadata"]["uid"] == "new"
    status = orjson.loads(patch["metadata"]["annotations"]["torchyard.dev/trainer-status"])
    assert status["metrics"] == [{"name": "accuracy", "value": "1"}] and "progressPercentage" not in status


async def test_reports_of_a_job_set_that_is_gone_are_not_those_of_the_one_that_has_its_name() -> None:
    controller = ProgressController(cast("Client", Recorder()), cast("Informer", OneJobSet()))
    controller.observe(replace(REPORT, job=JobReference("JobSet", "ns", "a", "old")))
    assert controller._jobs == {}
    controller.observe(replace(REPORT, job=JobReference("JobSet", "ns", "a", "js")))
    assert list(controller._jobs) == [JobReference("TrainJob", "ns", "a", "tj")]


async def test_late_reports_of_a_train_job_do_not_change_the_one_that_has_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.0)
    client, cached = Recorder(shown={"metadata": {"uid": "old"}}), {"metadata": {"uid": "old"}}
    cache = SimpleNamespace(get=lambda *_: cached)
    controller = ProgressController(cast("Client", client), None, cast("Informer", cache))
    report = replace(REPORT, job=JobReference("TrainJob", "ns", "a", "old"), source=ENDPOINT)
    async with running(controller):
        controller.observe(report)
        await first_answer(lambda: has_patches(client, 1), "the report while the job exists")
        client.shown = cached = {"metadata": {"uid": "new"}}
        controller.observe(replace(report, percent=99))
        await first_answer(lambda: gone(controller), "the job is forgotten")
    assert len(client.patches) == 1


TRAINJOB_REPORT = replace(REPORT, job=JobReference("TrainJob", "ns", "a", "tj"), source=ENDPOINT, updated=NOW)


class TrainJobs:
    """Stands for the cache of TrainJobs, which other replicas of the operator change."""

    def __init__(self) -> None:
        self.job: Object = {"metadata": {"name": "a", "namespace": "ns", "uid": "tj"}}
        self._handlers: list[Any] = []

    def on_change(self, handler: Any) -> None:
        self._handlers.append(handler)

    def get(self, _namespace: str, _name: str) -> Object:
        return self.job

    def change(self, updated: str) -> None:
        before, self.job = self.job, {**self.job, "status": {"trainerStatus": {"lastUpdatedTime": updated}}}
        for handler in self._handlers:
            handler("MODIFIED", self.job, before)


async def test_a_replica_writes_no_report_that_is_older_than_what_another_has_written() -> None:
    client, cache = Recorder({"metadata": {"uid": "tj"}}), TrainJobs()
    peer = ProgressController(cast("Client", client), None, cast("Informer", cache), has_peers=True)
    peer.observe(TRAINJOB_REPORT)
    cache.change("2026-01-01T00:00:05Z")
    peer.observe(replace(REPORT, job=JobReference("Job", "ns", "last"), time=NOW))
    async with running(peer):
        await first_answer(lambda: has_patches(client, 1))
    assert [plural for plural, _, _ in client.patches] == ["jobs"]


async def test_what_a_program_reports_to_another_replica_comes_before_its_log() -> None:
    client, cache = Recorder({"metadata": {"uid": "tj"}}), TrainJobs()
    leader = ProgressController(cast("Client", client), None, cast("Informer", cache), has_peers=True)
    cache.change("2026-01-01T00:00:05Z")
    leader.observe(replace(TRAINJOB_REPORT, source=LOG, time=datetime.now(UTC)))
    leader.observe(replace(REPORT, job=JobReference("Job", "ns", "last")))
    async with running(leader):
        await first_answer(lambda: has_patches(client, 1))
    assert [plural for plural, _, _ in client.patches] == ["jobs"]


async def test_a_replica_without_reports_forgets_jobs_that_others_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_CLEANUP_SECONDS", 0.01)
    cache = TrainJobs()
    peer = ProgressController(cast("Client", Recorder()), None, cast("Informer", cache), has_peers=True)
    cache.change("2026-01-01T00:00:05Z")
    assert not await gone(peer)
    async with running(peer):
        await first_answer(lambda: gone(peer), "the job is forgotten")


async def test_a_kind_that_the_operator_does_not_run_is_not_written() -> None:
    client = Recorder()
    controller = ProgressController(cast("Client", client), None, kinds=frozenset({"Job"}))
    controller.observe(TRAINJOB_REPORT)
    controller.observe(REPORT)
    async with running(controller):
        await first_answer(lambda: has_patches(client, 1))
    assert [plural for plural, _, _ in client.patches] == ["jobs"]
