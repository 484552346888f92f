"""The samples of a plane survive its restart, and a file that is not a database does not stop it."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.apiserver.registry.registry import Registry
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport, ProgressReports
from torchyard.core.samples.table import SampledJob, SampleTable
from torchyard.kube.sample_store import SampleStore, put_back, take_changes
from torchyard.yard.sample_collector import SampleCollector

JOB = SampledJob("default", "PyTorchJob", "mnist")


def test_samples_are_saved_and_loaded(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "samples.db")
    table = store.load()
    table.record(JOB, "worker-0", "loss", 10.0, 2.0)
    other = JOB._replace(name="other")
    table.record(other, "worker-0", "loss", 11.0, 1.0)
    store.save(*take_changes(table))
    assert take_changes(table) == ([], [])
    loaded = store.load()
    assert loaded.document([JOB], 0.0) == table.document([JOB], 0.0)
    loaded.remove_older(10.5)
    store.save(*take_changes(loaded))
    assert len(store.load()) == 1
    assert stat.S_IMODE((tmp_path / "samples.db").stat().st_mode) == 0o600


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(b"not a database" * 1000)
    assert len(SampleStore(path).load()) == 0
    table = SampleStore(path).load()
    table.record(JOB, "", "loss", 10.0, 2.0)
    SampleStore(path).save(*take_changes(table))
    assert len(SampleStore(path).load()) == 1


def usage_of(plural: str) -> list[dict[str, Any]]:
    labels = {"training.kubeflow.org/job-name": "mnist"}
    metadata = {"name": "mnist-worker-0", "namespace": "default", "labels": labels}
    usages = [{"cpu": "1500000000n", "memory": "2048Ki"}, {"cpu": "500000000n", "memory": "1024Ki"}]
    return [{"metadata": metadata, "containers": [{"usage": usage} for usage in usages]}] if plural == "pods" else []


def test_usage_and_reports_of_a_job_are_recorded(tmp_path: Path) -> None:
    registry = SimpleNamespace(usage=SimpleNamespace(usage_metrics=usage_of), progress=ProgressReports())
    store = SampleStore(tmp_path / "samples.db")
    collector = SampleCollector(cast(Registry, registry), store, keep=timedelta(days=1), clock=lambda: 100.0)
    collector.measure()
    reference, time = JobReference("PyTorchJob", "default", "mnist"), datetime.fromtimestamp(100, UTC)
    metrics = {"loss": "0.25", "note": "none"}
    registry.progress.publish(ProgressReport(reference, "mnist-worker-0", 0, time, LOG, 40, metrics=metrics))
    document = collector.table.document([JOB], 0.0)
    assert {series["replica"] for series in document["series"]} == {"worker-0"}
    assert {(series["name"], series["unit"], *series["points"]) for series in document["series"]} == {
        ("cpu", "cores", (100.0, 2.0)),
        ("memory", "bytes", (100.0, 3 << 20)),
        ("loss", "", (100.0, 0.25)),
        ("progress", "percent", (100.0, 40.0)),
    }


@pytest.mark.parametrize("error", [sqlite3.OperationalError("database or disk is full"), OSError(28, "No space left")])
def test_a_file_that_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = SampleStore(tmp_path / "samples.db")
    table = store.load()
    table.record(JOB, "", "loss", 10.0, 2.0)
    store.save(*take_changes(table))

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("torchyard.kube.sample_store.sqlite3.connect", fail)
        assert len(store.load()) == 0
    assert len(store.load()) == 1


async def test_what_could_not_be_saved_is_saved_the_next_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class FullDisk(SampleStore):
        is_full = True

        def save(self, *changes: Any) -> None:
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")
            super().save(*changes)

    store = FullDisk(tmp_path / "samples.db")
    registry = SimpleNamespace(usage=None, progress=ProgressReports())
    collector = SampleCollector(cast(Registry, registry), store, keep=timedelta(days=1))
    collector.table.record(JOB, "", "loss", 10.0, 2.0)
    collector.table.removed.add(JOB._replace(name="other"))
    await collector.save()
    assert "samples not saved" in caplog.text and len(store.load()) == 0
    store.is_full = False
    await collector.save()
    assert len(store.load()) == 1 and take_changes(collector.table) == ([], [])


async def test_a_collector_that_is_started_again_keeps_its_samples(tmp_path: Path) -> None:
    registry = SimpleNamespace(usage=None, progress=ProgressReports())
    loads: list[int] = []

    class CountingStore(SampleStore):
        def load(self) -> SampleTable:
            loads.append(1)
            return super().load()

    store = CountingStore(tmp_path / "samples.db")
    collector = SampleCollector(cast(Registry, registry), store, keep=timedelta(days=1))
    for _ in range(2):
        task = asyncio.create_task(collector.run())
        async with asyncio.timeout(30):
            while not collector._is_loaded:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        collector.table.record(JOB, "", "loss", 10.0, 2.0)
        table = collector.table
        task.cancel()
        await asyncio.wait([task])
    assert loads == [1] and collector.table is table


def test_many_changes_are_taken_in_parts_of_whole_jobs_the_oldest_first(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "samples.db")
    table = store.load()
    jobs = [JOB._replace(name=str(number)) for number in range(3)]
    for job in (*jobs, jobs[0]):
        table.record(job, "", "loss", 10.0, 2.0)
        table.record(job, "", "lr", 10.0, 2.0)
    changed, removed = take_changes(table, 3)
    assert [job for job, _, _ in changed] == [jobs[0], jobs[0], jobs[1], jobs[1]]
    put_back(table, changed, removed)
    assert list(table.changed) == jobs
    table.record(jobs[0], "", "loss", 99.0, 9.0)
    assert [len(series) for _, _, series in changed] == [1, 1, 1, 1], "copies, which another thread may read"


def test_a_job_that_is_removed_and_recorded_again_has_only_its_new_curves_in_the_file(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "samples.db")
    table = store.load()
    table.record(JOB, "", "old", 10.0, 2.0)
    store.save(*take_changes(table))
    table.remove_older(20.0)
    table.record(JOB, "", "new", 30.0, 2.0)
    store.save(*take_changes(table))
    assert [key.name for key in store.load().curves(JOB)] == ["new"]


def test_a_report_of_the_future_is_recorded_now_and_another_run_begins_anew(tmp_path: Path) -> None:
    registry = SimpleNamespace(usage=None, progress=ProgressReports())
    store = SampleStore(tmp_path / "samples.db")
    collector = SampleCollector(cast(Registry, registry), store, keep=timedelta(days=1), clock=lambda: 100.0)
    for uid, loss in (("old", "1"), ("new", "2"), ("old", "3")):
        reference = JobReference("PyTorchJob", "default", "mnist", uid)
        future = datetime(2099, 1, 1, tzinfo=UTC)
        registry.progress.publish(ProgressReport(reference, "mnist-worker-0", 0, future, LOG, metrics={"loss": loss}))
    [series] = collector.table.document([JOB], 0.0)["series"]
    assert series["points"] == [(100.0, 2.0)]
