"""Reports of a job: their format, what the job shows of them, and when it is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.progress import progress_text_of, trainer_status_of
from torchyard.core.progress.endpoint import parse_report
from torchyard.core.progress.job_progress import JobProgress
from torchyard.core.progress.owners import job_of, rank_of
from torchyard.core.progress.reports import ENDPOINT, LOG, JobReference, ProgressReport, ProgressReports
from torchyard.core.progress.schedule import IDLE_SECONDS, INTERVAL, MAX_WRITES_PER_SECOND, WriteSchedule
from torchyard.core.progress.trainer_status import progress_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = "2026-01-01T00:00:00Z"
TRAINJOB = JobReference("TrainJob", "ns", "a", "u")
LOGGED = ProgressReport(JobReference("Job", "ns", "a"), "a-0", 0, NOW, LOG, 10, 90, {"loss": "0.5"})
POSTED = replace(LOGGED, source=ENDPOINT, percent=50, remaining=None, metrics={"loss": "0.25", "note": "x"})


def test_observers_get_every_report_and_its_numbers() -> None:
    reports, seen = ProgressReports(), list[ProgressReport]()
    reports.subscribe(seen.append)
    reports.publish(LOGGED)
    reports.publish(POSTED)
    assert seen == [LOGGED, POSTED]
    assert list(POSTED.samples()) == [("loss", 0.25)]
    assert list(replace(LOGGED, metrics={"loss": "nan", "lr": "1e-3"}).samples()) == [("lr", 0.001)]


def test_metrics_of_a_log_accumulate_and_the_first_replica_speaks_for_the_job() -> None:
    job = JobProgress()
    assert job.add(replace(LOGGED, rank=1))
    assert job.add(replace(LOGGED, percent=20, metrics={"accuracy": "0.9"}))
    assert not job.add(replace(LOGGED, rank=1, percent=99))
    assert job.status == {
        "lastUpdatedTime": TIME,
        "progressPercentage": 20,
        "estimatedRemainingSeconds": 90,
        "metrics": [{"name": "accuracy", "value": "0.9"}],
    }


def test_what_a_program_reports_itself_replaces_what_its_log_tells() -> None:
    job = JobProgress()
    job.add(LOGGED)
    assert job.add(POSTED)
    assert not job.add(replace(LOGGED, time=NOW + timedelta(seconds=30)))
    assert progress_text(job.status or {}) == "50%, loss 0.25"
    assert job.add(replace(LOGGED, time=NOW + timedelta(seconds=90)))


def test_a_job_that_is_over_shows_no_time_left() -> None:
    job = JobProgress()
    over = replace(LOGGED, percent=None, remaining=None, metrics={}, is_last=True)
    assert not job.add(over)
    job.add(LOGGED)
    assert progress_text(job.status or {}, is_over=job.is_over) == "10%, 90s left, loss 0.5"
    assert job.add(over)
    assert progress_text(job.status or {}, is_over=job.is_over) == "10%, loss 0.5"


def test_the_end_of_another_replica_is_not_the_end_of_the_job() -> None:
    job = JobProgress()
    job.add(LOGGED)
    over = replace(LOGGED, rank=1, percent=None, remaining=None, metrics={}, is_last=True)
    assert not job.add(over) and not job.is_over
    assert job.add(replace(over, rank=0)) and job.is_over


def test_a_job_that_could_not_be_written_is_due_again_until_its_report_is_old() -> None:
    schedule = WriteSchedule[str]()
    schedule.offer("a", 0.0, is_last=True)
    assert schedule.due(0.0) == ["a"]
    schedule.retry("a", 0.0)
    assert not schedule.is_idle() and schedule.idle_keys(IDLE_SECONDS + 1.0) == []
    assert (schedule.due(INTERVAL - 0.1), schedule.due(INTERVAL)) == ([], ["a"])
    schedule.retry("a", IDLE_SECONDS)
    schedule.retry("b", 0.0)
    assert schedule.is_idle()


def test_a_job_is_written_at_once_then_at_most_every_five_seconds_and_at_the_end() -> None:
    schedule = WriteSchedule[str]()
    schedule.offer("a", 0.0)
    assert schedule.due(0.0) == ["a"]
    schedule.offer("a", 1.0)
    assert schedule.due(INTERVAL - 0.1) == []
    assert schedule.due(INTERVAL) == ["a"]
    assert schedule.is_idle()
    assert schedule.idle_keys(IDLE_SECONDS) == []
    assert schedule.idle_keys(IDLE_SECONDS + 2.0) == ["a"]
    schedule.forget("a")
    assert len(schedule) == 0


def test_the_first_metrics_do_not_wait_for_the_report_before_them() -> None:
    """A bar begins with 0 %, and the first loss follows it."""
    schedule = WriteSchedule[str]()
    schedule.offer("a", 100.0)
    assert schedule.due(100.0) == ["a"]
    schedule.offer("a", 101.0)
    assert schedule.due(101.0) == []
    schedule.offer("a", 102.0, is_urgent=True)
    assert schedule.due(102.0) == ["a"]
    schedule.offer("a", 103.0, is_urgent=True)  # not a second time
    assert schedule.due(106.9) == []
    assert schedule.due(107.0) == ["a"]


def test_many_jobs_are_written_less_often_but_their_first_and_last_reports_are_not_held_back() -> None:
    schedule, count = WriteSchedule[int](), 1000
    for job in range(count):
        schedule.offer(job, 0.0)
    assert len(schedule.due(0.0)) == count
    for job in range(count):
        schedule.offer(job, 1.0, is_last=job == 7)
    assert schedule.due(INTERVAL) == [7]
    assert schedule.due(count / MAX_WRITES_PER_SECOND - 0.1) == []
    assert len(schedule.due(count / MAX_WRITES_PER_SECOND)) == count - 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "Invalid payload"),
        (b"[]", "Invalid payload"),
        (b'{"trainerStatus": 5}', "status.trainerStatus"),
        (b'{"trainerStatus": {}}', "lastUpdatedTime is required when trainerStatus is present"),
        (b'{"trainerStatus": {"lastUpdatedTime": "now"}}', "lastUpdatedTime"),
        (b'{"trainerStatus": {"lastUpdatedTime": 5}}', "lastUpdatedTime"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "progressPercentage": 101}}', "between 0 and 100"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "progressPercentage": "5"}}', "must be an integer"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "estimatedRemainingSeconds": -1}}', "between 0 and"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "metrics": {}}}', "must be a list"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "metrics": [{"name": "a"}]}}', "metrics[0].value"),
        (b'{"trainerStatus": {"lastUpdatedTime": "%s", "metrics": [5]}}', "metrics[0].name"),
    ],
)
def test_a_malformed_report_is_refused(body: bytes, field: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_report(body.replace(b"%s", TIME.encode()), TRAINJOB, NOW)
    assert refused.value.status == 422
    assert field in refused.value.message


def test_the_formats_of_the_sdk_and_of_transformers_are_read() -> None:
    body = b'{"trainerStatus": {"lastUpdatedTime": "2026-01-01T01:00:00.5+01:00", "progressPercentage": 50}}'
    report, answer = parse_report(body, TRAINJOB, NOW + timedelta(hours=1), replica="a-0")
    assert report is not None
    assert (report.percent, report.replica, answer["trainerStatus"]["progressPercentage"]) == (50, "a-0", 50)
    assert (report.job, report.time) == (TRAINJOB, NOW + timedelta(hours=1))
    assert report.updated == NOW + timedelta(milliseconds=500)
    assert parse_report(b"{}", TRAINJOB, NOW) == (None, {})


def test_a_program_whose_clock_is_wrong_does_not_keep_later_reports_from_being_shown() -> None:
    body = b'{"trainerStatus": {"lastUpdatedTime": "2099-01-01T00:00:00Z", "progressPercentage": 50}}'
    report, _ = parse_report(body, TRAINJOB, NOW)
    assert report is not None and (report.time, report.updated) == (NOW, NOW)
    job = JobProgress()
    job.add(report)
    assert job.status is not None and job.status["lastUpdatedTime"] == TIME
    assert job.add(replace(LOGGED, time=NOW + timedelta(seconds=90)))


def pod(owner: str, labels: dict[str, str], *, container: str = "main") -> Object:
    reference = {"kind": owner, "name": "o", "uid": "u", "controller": True}
    metadata = {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": [reference]}
    return {"metadata": metadata, "spec": {"containers": [{"name": container}]}}


def test_pods_belong_to_the_job_that_made_them() -> None:
    jobset = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": "v"}
    assert job_of(pod("Job", {})) == JobReference("Job", "ns", "o", "u")
    assert job_of(pod("PyTorchJob", {})) == JobReference("PyTorchJob", "ns", "o", "u")
    assert job_of(pod("Job", jobset)) == JobReference("JobSet", "ns", "js", "v")
    assert job_of(pod("Job", jobset, container="model-initializer")) is None
    assert job_of(pod("ReplicaSet", {})) is None
    assert job_of({"metadata": {"name": "p", "namespace": "ns"}, "spec": {}}) is None


def test_masters_come_first_and_then_the_lower_index() -> None:
    def replica(type: str, index: int) -> Object:
        prefix = "training.kubeflow.org/replica-"
        return pod("PyTorchJob", {f"{prefix}type": type, f"{prefix}index": str(index)})

    assert [rank_of(replica("master", 0)), rank_of(replica("worker", 0)), rank_of(replica("worker", 1))] == [0, 1, 2]
    assert rank_of(pod("Job", {"batch.kubernetes.io/job-completion-index": "3"})) == 3
    assert rank_of(pod("Job", {})) == 0


@pytest.mark.parametrize("written", ["", "{", "5"])
def test_an_annotation_that_a_user_changed_is_no_progress(written: str) -> None:
    annotations: dict[str, Any] = {"torchyard.dev/trainer-status": written}
    assert trainer_status_of({"metadata": {"annotations": annotations}}) is None
    assert progress_text_of({"metadata": {}}) == ""
