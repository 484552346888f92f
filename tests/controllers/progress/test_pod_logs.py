"""The reader of a cluster's logs, with a client that has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.controllers import progress_logs
from torchyard.controllers.progress_logs import PodLogReader
from torchyard.core.progress import log_polling
from torchyard.core.progress.reports import ProgressReport
from torchyard.kube.client import Client


class Logs:
    """Stands for the client: `texts` by pod; a pod without one answers 404. `on_end` is called at the end of a log."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []
        self.on_end: Callable[[], None] = lambda: None

    async def logs(self, _ref: Any, name: str, *_: Any, tail_lines: int, **__: Any) -> AsyncGenerator[bytes, None]:
        self.asked.append(name)
        if name not in self.texts:
            raise StatusError(404, "NotFound", f"pods {name!r} not found")
        texts = self.texts[name].split("|")[-tail_lines:]
        for number, text in enumerate(texts):
            yield f"2026-01-01T00:00:{number:02d}Z {text}\n".encode()
        self.on_end()


class Readings:
    def __init__(self, **options: Any) -> None:
        self.logs, self.reports = Logs(), cast("list[ProgressReport]", [])
        self.reader = PodLogReader(cast("Client", self.logs), self.reports.append, **options)

    def change(self, index: int, phase: str, change: str = "MODIFIED", job: str = "j") -> None:
        owner = {"kind": "Job", "name": job, "uid": job, "controller": True}
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        metadata = {"name": f"{job}-{index}", "namespace": "n", "uid": f"{job}-{index}", "labels": labels}
        pod: Object = {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"phase": phase}}
        self.reader.observe(change, {**pod, "spec": {"containers": [{"name": "main"}]}})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reader.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await first_answer(holds)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_polling, "INTERVAL", 0.01)


async def test_the_first_replica_speaks_for_its_job_and_then_the_next() -> None:
    readings = Readings()
    readings.logs.texts = {"j-0": "step 10/100", "j-1": "step 11/100"}
    async with readings.running():
        readings.change(1, "Running")
        readings.change(0, "Running")
        await readings.until(lambda: len(readings.reports) == 1)
        assert readings.logs.asked[0] == "j-0"
        assert "j-1" not in readings.logs.asked
        readings.change(0, "Running", "DELETED")
        await readings.until(lambda: [report.percent for report in readings.reports] == [10, None, 11])


async def test_the_end_of_a_log_is_read_after_the_pod_has_ended() -> None:
    readings = Readings()
    readings.logs.texts = {"j-0": "step 10/100"}
    async with readings.running():
        readings.change(0, "Running")
        await readings.until(lambda: len(readings.reports) == 1)
        readings.logs.texts["j-0"] += "|step 100/100"
        readings.change(0, "Succeeded")
        await readings.until(lambda: readings.reports[-1].is_last)
        assert [report.percent for report in readings.reports] == [10, 100, None]
        count = len(readings.logs.asked)
        readings.change(0, "Succeeded")
        readings.change(0, "Running", job="other")
        await readings.until(lambda: "other-0" in readings.logs.asked)
        assert readings.logs.asked[count:].count("j-0") == 0


async def test_a_log_that_cannot_be_read_does_not_keep_others_from_being_read() -> None:
    readings = Readings()
    readings.logs.texts = {"b-0": "step 5/10"}
    async with readings.running():
        readings.change(0, "Running", job="a")
        readings.change(0, "Running", job="b")
        await readings.until(lambda: [report.percent for report in readings.reports] == [50])
        await readings.until(lambda: readings.logs.asked.count("a-0") > 1)


async def test_jobs_of_others_and_pods_that_ended_before_are_not_read() -> None:
    readings = Readings(is_managed=lambda job: job.name != "theirs")
    readings.logs.texts = {"ours-0": "step 5/10", "theirs-0": "step 1/10", "old-0": "step 1/10"}
    async with readings.running():
        readings.change(0, "Running", job="theirs")
        readings.change(0, "Succeeded", job="old")
        readings.change(0, "Running", job="ours")
        await readings.until(lambda: len(readings.reports) == 1)
        assert set(readings.logs.asked) == {"ours-0"}


async def test_a_pod_that_runs_is_read_when_its_job_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_logs, "_RETRY_SECONDS", 0.0)
    answers = iter([False, False, False])
    readings = Readings(is_managed=lambda _: next(answers, True))
    readings.logs.texts = {"j-0": "step 10/100"}
    readings.change(0, "Running")
    async with readings.running():
        await readings.until(lambda: [report.percent for report in readings.reports] == [10])


@pytest.mark.parametrize(("phase", "change"), [("Succeeded", "MODIFIED"), ("Running", "DELETED")])
async def test_a_pod_whose_job_comes_too_late_is_not_read(phase: str, change: str) -> None:
    managed = {"ours"}
    readings = Readings(is_managed=lambda job: job.name in managed)
    readings.logs.texts = {"ours-0": "step 5/10", "late-0": "step 1/10"}
    readings.change(0, "Running", job="late")
    readings.change(0, phase, change, job="late")
    managed.add("late")
    readings.change(0, "Running", job="ours")
    async with readings.running():
        await readings.until(lambda: len(readings.reports) == 1)
    assert set(readings.logs.asked) == {"ours-0"}


async def test_a_pod_that_is_deleted_while_it_runs_has_a_last_report() -> None:
    readings = Readings()
    readings.logs.texts = {"j-0": "step 10/100"}
    async with readings.running():
        readings.change(0, "Running")
        readings.change(1, "Running")
        await readings.until(lambda: len(readings.reports) == 1)
        readings.change(1, "Running", "DELETED")
        assert len(readings.reports) == 1, "it does not speak for the job"
        readings.change(0, "Running", "DELETED")
        assert [(report.replica, report.is_last) for report in readings.reports] == [("j-0", False), ("j-0", True)]


async def test_the_last_report_of_a_pod_that_is_deleted_during_a_look_comes_after_what_was_read() -> None:
    readings = Readings()
    readings.logs.texts = {"j-0": "step 10/100"}
    readings.logs.on_end = lambda: readings.change(0, "Running", "DELETED")
    async with readings.running():
        readings.change(0, "Running")
        await readings.until(lambda: len(readings.reports) == 3)
    assert [(report.percent, report.is_last) for report in readings.reports][1:] == [(10, False), (None, True)]
