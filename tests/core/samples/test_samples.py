"""Curves stay small and keep their shape, and tables drop the oldest jobs first."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.core.samples import table as table_module
from torchyard.core.samples.owners import run_uid, sampled_jobs, sampled_replica
from torchyard.core.samples.series import MAX_POINTS, Series
from torchyard.core.samples.table import SampledJob, SampleTable
from torchyard.core.samples.usage import record_usage

JOB = SampledJob("default", "PyTorchJob", "mnist")


def test_samples_of_one_interval_are_averaged() -> None:
    series = Series(step=10)
    for time, value in ((100, 1.0), (105, 2.0), (109.9, 3.0), (110, 8.0)):
        series.add(time, value)
    assert series.points() == [(100.0, 2.0), (110.0, 8.0)]
    assert series.points(since=110) == [(110.0, 8.0)]


def test_a_late_sample_is_dropped_and_a_value_that_is_not_finite_is_shown() -> None:
    series = Series()
    series.add(5, 1.0)
    series.add(4, 9.0)
    series.add(5.5, math.nan)
    assert len(series) == 1 and math.isnan(series.points()[0][1])
    series.add(5.7, 2.0)
    assert series.points() == [(5.0, 2.0)]


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=3000))
def test_a_series_has_few_points_and_the_mean_of_all_samples(gaps: list[float]) -> None:
    series, time = Series(), 1.7e9
    for number, gap in enumerate(gaps):
        time += gap
        series.add(time, float(number))
    assert len(series) <= MAX_POINTS
    times = [point[0] for point in series.points()]
    assert times == sorted(set(times)) and times[0] <= 1.7e9 + gaps[0] and times[-1] <= time
    weighted = sum(value * count for value, count in zip(series._values, series._counts, strict=True))
    assert weighted / len(gaps) == pytest.approx((len(gaps) - 1) / 2)
    assert Series.from_bytes(series.to_bytes()).points() == series.points()


@pytest.mark.parametrize("data", [b"", b"x", Series().to_bytes() + b"x", bytes(12), Series().to_bytes()[:-1]])
def test_bytes_that_are_not_a_series_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Series.from_bytes(data)


def test_a_table_drops_the_job_without_samples_for_the_longest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_SERIES", 3)
    monkeypatch.setattr(table_module, "MAX_SERIES_OF_JOB", 3)
    table = SampleTable()
    first, second = JOB, JOB._replace(name="other")
    for name in ("a", "b", "c", "d"):
        table.record(first, "worker-0", name, 10.0, 1.0)
    assert len(table) == 3, "a job has a limit of its own"
    table.record(second, "", "a", 20.0, 1.0)
    assert len(table) == 1 and not table.curves(first) and table.removed == {first}
    assert table.document([first], 0.0) == {"series": [], "lostBefore": 10.0}
    table.remove_older(30.0)
    assert len(table) == 0


def test_the_document_of_a_job_has_units_replicas_and_points_since_a_time() -> None:
    table = SampleTable(lost_before=5.0)
    table.record(JOB, "worker-0", "cpu", 10.0, 1.5, unit="cores")
    table.record(JOB, "worker-0", "cpu", 20.0, 0.5, unit="cores")
    table.record(JOB, "", "loss", 10.0, 2.0)
    assert table.document([JOB], 15.0) == {
        "series": [{"name": "cpu", "replica": "worker-0", "unit": "cores", "points": [(20.0, 0.5)]}],
        "lostBefore": 5.0,
    }


@pytest.mark.parametrize(
    ("labels", "job", "replica"),
    [
        ({"training.kubeflow.org/job-name": "mnist"}, JOB, "worker-0"),
        (
            {"jobset.sigs.k8s.io/jobset-name": "mnist", "batch.kubernetes.io/job-name": "mnist-node-0"},
            SampledJob("default", "JobSet", "mnist"),
            "worker-0",
        ),
        ({"batch.kubernetes.io/job-name": "mnist"}, SampledJob("default", "Job", "mnist"), "worker-0"),
        ({}, SampledJob("default", "Pod", "mnist-worker-0"), "mnist-worker-0"),
    ],
)
def test_the_job_of_a_pod_is_the_outermost(labels: dict[str, str], job: SampledJob, replica: str) -> None:
    assert sampled_replica("default", "mnist-worker-0", labels) == (job, replica)


def test_a_train_job_has_the_samples_of_its_job_set() -> None:
    kinds = [job.kind for job in sampled_jobs("default", "trainjobs.trainer.kubeflow.org", "mnist")]
    assert kinds == ["TrainJob", "JobSet"]
    assert sampled_jobs("default", "secrets", "mnist") == []


def test_a_job_that_was_created_again_has_new_curves_and_late_samples_of_the_one_before_are_refused() -> None:
    table = SampleTable()
    assert table.accept_run(JOB, "old")
    table.record(JOB, "", "loss", 10.0, 1.0)
    assert table.accept_run(JOB, "") and table.accept_run(JOB, "old") and len(table) == 1
    assert table.accept_run(JOB, "new") and len(table) == 0 and table.removed == {JOB}
    table.record(JOB, "", "loss", 5.0, 2.0)
    assert not table.accept_run(JOB, "old")
    assert table.document([JOB], 0.0)["series"][0]["points"] == [(5.0, 2.0)]


def test_usage_of_a_job_that_was_created_again_begins_anew() -> None:
    table, labels = SampleTable(), {"batch.kubernetes.io/job-name": "a"}
    for time, uid in ((10.0, "old"), (20.0, "new")):
        labels["batch.kubernetes.io/controller-uid"] = uid
        metadata = {"name": "a-0", "namespace": "default", "labels": labels}
        record_usage(table, {"metadata": metadata, "containers": [{"usage": {"cpu": "1"}}]}, time)
    [cpu, _memory] = table.document([SampledJob("default", "Job", "a")], 0.0)["series"]
    assert cpu["points"] == [(20.0, 1.0)]
    assert run_uid({"jobset.sigs.k8s.io/jobset-name": "a", "jobset.sigs.k8s.io/jobset-uid": "u", **labels}) == "u"
    assert run_uid({"training.kubeflow.org/job-name": "a"}) == ""


def test_the_bytes_of_a_series_are_its_points_in_order() -> None:
    series = Series()
    series.add(1.0, 2.5)
    series.add(1.5, 3.5)
    series.add(7.0, -1.0)
    assert series.to_bytes() == struct.pack("<dIqdQqdQ", 1.0, 2, 1, 3.0, 2, 7, -1.0, 1)
