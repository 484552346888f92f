"""Status, deadline and time to live of TrainJobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.api.times import to_rfc3339
from torchyard.core.training.failures import FailedContainer
from torchyard.core.trainjob.decide import TrainJobDecision, decide, needs_objects
from torchyard.core.trainjob.view import NodeFailure, TrainJobView

Object = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def job(*, status: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "creationTimestamp": to_rfc3339(NOW)}
    job: Object = {"metadata": {**metadata, "annotations": annotations or {}}}
    job["spec"] = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    return {**job, "status": status} if status else job


def jobset(*conditions: Object, ready: int = 0, active: int = 0) -> Object:
    counts = {"name": "node", "ready": ready, "succeeded": 0, "failed": 0, "active": active, "suspended": 0}
    return {
        "metadata": {"name": "job"},
        "spec": {},
        "status": {"conditions": list(conditions), "replicatedJobsStatus": [counts]},
    }


def condition(type: str, reason: str, message: str, status: str = "True", at: datetime = NOW) -> Object:
    return {
        "type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": to_rfc3339(at),
    }  # fmt: skip


def status_of(decision: TrainJobDecision) -> Object:
    assert decision.status is not None
    return decision.status


def brief(status: Object) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]


def test_a_running_job_has_no_condition_and_its_state_is_running() -> None:
    status = status_of(decide(TrainJobView(job(), NOW, jobset(ready=1, active=1))))
    assert brief(status) == []
    assert status["state"] == "Running"
    assert status["jobsStatus"][0]["active"] == 1


def test_a_job_whose_pods_are_not_ready_is_created() -> None:
    assert status_of(decide(TrainJobView(job(), NOW, jobset(active=1))))["state"] == "Created"


def test_the_suspended_condition_goes_when_the_job_is_resumed() -> None:
    status = status_of(decide(TrainJobView(job(suspend=True), NOW, jobset())))
    assert brief(status) == [("Suspended", "True", "Suspended")]
    assert status["state"] == "Suspended"
    resumed = decide(TrainJobView(job(status=status), NOW, jobset()))
    assert brief(status_of(resumed)) == []
    assert [(event.reason, event.message) for event in resumed.events] == [("Resumed", "TrainJob is resumed")]


def test_the_end_is_copied_from_the_jobset() -> None:
    done = condition("Completed", "AllJobsCompleted", "jobset completed successfully")
    status = status_of(decide(TrainJobView(job(), NOW, jobset(done))))
    assert brief(status) == [("Complete", "True", "AllJobsCompleted")]
    assert status["conditions"][0]["message"] == "jobset completed successfully"
    assert status["state"] == "Complete"


def test_a_failure_names_the_first_failed_node_and_the_end_of_its_log() -> None:
    failed = condition("Failed", "FailedJobs", "jobset failed")
    failure = NodeFailure(FailedContainer("job-node-0-1-x", "node", 1, to_rfc3339(NOW)), "ValueError: bad")
    status = status_of(decide(TrainJobView(job(), NOW, jobset(failed), failure)))
    assert status["conditions"][0]["message"] == (
        "jobset failed; first failed node: job-node-0-1-x, container node exited with code 1,"
        " its last lines: ValueError: bad"
    )


def test_the_reason_is_in_a_condition_while_objects_cannot_be_made() -> None:
    status = status_of(decide(TrainJobView(job(), NOW, None, None, "quota exceeded")))
    assert brief(status) == [("ResourcesCreated", "False", "TrainJobResourcesCreationFailed")]
    assert brief(status_of(decide(TrainJobView(job(status=status), NOW, jobset())))) == []


def test_a_job_past_its_deadline_fails_and_loses_its_jobset() -> None:
    late = decide(TrainJobView(job(activeDeadlineSeconds=5), NOW + timedelta(seconds=5), jobset()))
    assert brief(status_of(late)) == [("Failed", "True", "DeadlineExceeded")]
    assert late.delete_jobset
    assert status_of(late)["jobsStatus"] is None  # its pods are deleted
    assert decide(TrainJobView(job(activeDeadlineSeconds=5), NOW + timedelta(seconds=3), jobset())).wake_after == 2


def test_a_deadline_counts_from_the_last_resumption_and_not_while_suspended() -> None:
    resumed = condition("Suspended", "ResumeJobs", "jobset is resumed", "False", NOW + timedelta(seconds=60))
    at = NOW + timedelta(seconds=62)
    assert decide(TrainJobView(job(activeDeadlineSeconds=5), at, jobset(resumed))).wake_after == 3
    assert decide(TrainJobView(job(activeDeadlineSeconds=5, suspend=True), at, jobset())).wake_after is None


def test_a_resumed_job_has_its_whole_deadline_although_its_jobset_is_still_suspended() -> None:
    stopped = condition("Suspended", "SuspendedJobs", "jobset is suspended")
    status = status_of(decide(TrainJobView(job(suspend=True, activeDeadlineSeconds=5), NOW, jobset(stopped))))
    at = NOW + timedelta(hours=2)
    resumed = decide(TrainJobView(job(status=status, activeDeadlineSeconds=5), at, jobset(stopped)))
    assert (brief(status_of(resumed)), resumed.wake_after, resumed.delete_jobset) == ([], 5, False)
    # The time stays when the JobSet is late, gone, or created again without a condition.
    running = job(status=status_of(resumed), activeDeadlineSeconds=5)
    for seen in (jobset(stopped), jobset(), None):
        assert decide(TrainJobView(running, at + timedelta(seconds=3), seen)).wake_after == 2
    late = decide(TrainJobView(running, at + timedelta(seconds=5), jobset(stopped)))
    assert brief(status_of(late)) == [("Failed", "True", "DeadlineExceeded")]


def test_a_jobset_that_is_suspended_without_a_record_of_the_resumption_does_not_fail_the_job() -> None:
    stopped = condition("Suspended", "SuspendedJobs", "jobset is suspended")
    resumed = decide(TrainJobView(job(activeDeadlineSeconds=5), NOW + timedelta(hours=2), jobset(stopped)))
    assert resumed.wake_after == 5


def test_a_job_past_its_deadline_loses_a_jobset_that_is_still_there() -> None:
    failed: Object = {"conditions": [condition("Failed", "DeadlineExceeded", "late")]}
    assert decide(TrainJobView(job(status=failed), NOW, jobset())).delete_jobset
    assert not decide(TrainJobView(job(status=failed), NOW, None)).delete_jobset
    other: Object = {"conditions": [condition("Failed", "FailedJobs", "jobset failed")]}
    assert not decide(TrainJobView(job(status=other), NOW, jobset())).delete_jobset


def test_the_counts_of_a_finished_job_follow_the_pods_that_are_left() -> None:
    done = condition("Completed", "AllJobsCompleted", "jobset completed successfully")
    status = status_of(decide(TrainJobView(job(), NOW, jobset(done, ready=1, active=1))))
    assert (status["state"], status["jobsStatus"][0]["active"]) == ("Complete", 1)
    finished = job(status=status)
    gone = decide(TrainJobView(finished, NOW, jobset(done)))
    assert set(status_of(gone)) == {"jobsStatus"}
    assert status_of(gone)["jobsStatus"][0]["active"] == 0
    assert gone.events == []
    for unchanged in (jobset(done, ready=1, active=1), None):
        assert decide(TrainJobView(finished, NOW, unchanged)).status is None
    late: Object = {"conditions": [condition("Failed", "DeadlineExceeded", "late")]}
    assert decide(TrainJobView(job(status=late), NOW, jobset(active=1))).status is None


def test_an_unknown_kind_of_runtime_fails_the_job() -> None:
    unknown = job(runtimeRef={"name": "x", "kind": "Other"})
    assert not needs_objects(unknown)
    status = status_of(decide(TrainJobView(unknown, NOW)))
    assert brief(status) == [("Failed", "True", "TrainingRuntimeNotSupported")]
    assert status["conditions"][0]["message"] == "unsupported runtime: Other.trainer.kubeflow.org"


def test_a_job_of_another_manager_is_left_alone() -> None:
    other = job(managedBy="kueue.x-k8s.io/multikueue")
    assert not needs_objects(other)
    assert decide(TrainJobView(other, NOW)) == TrainJobDecision()


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    ended: Object = {"conditions": [condition("Complete", "AllJobsCompleted", "done")]}
    finished = job(status=ended, annotations={"torchyard.dev/ttl-seconds-after-finished": "10"})
    early = decide(TrainJobView(finished, NOW + timedelta(seconds=4)))
    assert (early.delete_job, early.wake_after) == (False, 6)
    assert decide(TrainJobView(finished, NOW + timedelta(seconds=10))).delete_job


def test_the_progress_of_a_job_is_not_touched() -> None:
    progress = {"progressPercentage": 5, "lastUpdatedTime": to_rfc3339(NOW)}
    assert "trainerStatus" not in status_of(decide(TrainJobView(job(status={"trainerStatus": progress}), NOW)))
