"""The samples of a plane survive its restart, and a file that is not a database does not stop it."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from torchyard.apiserver.registry.registry import Registry
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport, ProgressReports
from torchyard.core.samples.table import SampledJob
from torchyard.yard.sample_collector import SampleCollector
from torchyard.yard.sample_store import SampleStore, take_changes

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
