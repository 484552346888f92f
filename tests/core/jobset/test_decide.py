"""Decisions about JobSets that depend on times and on what a server shows for a moment only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.api.jobset.defaults import set_defaults
from torchyard.api.objects import Object
from torchyard.core.jobset.decide import JobSetDecision, decide
from torchyard.core.jobset.view import JobSetView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def jobset(*jobs: Object, status: Object | None = None, **spec: Any) -> Object:
    pod = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    metadata = {"name": "train", "namespace": "default", "uid": "u1"}
    replicated = [{"template": {"spec": {"template": pod}}, **job} for job in jobs or ({"name": "a", "replicas": 2},)]
    obj: Object = {"metadata": metadata, "spec": {"replicatedJobs": replicated, **spec}, "status": status or {}}
    set_defaults(obj)
    return obj


def job(name: str, *, attempt: int = 0, failed_at: str = "", message: str = "", **extra: Any) -> Object:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": name.split("-")[1],
        "jobset.sigs.k8s.io/job-index": name.split("-")[2],
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
    }
    conditions = [{"type": "Failed", "status": "True", "lastTransitionTime": failed_at, "message": message}]
    status = {"conditions": conditions} if failed_at else {}
    return {"metadata": {"name": name, "labels": labels, **extra}, "spec": {"parallelism": 1}, "status": status}


def decided(obj: Object, *jobs: Object, after: float = 0, has_service: bool = True) -> JobSetDecision:
    now = NOW + timedelta(seconds=after)
    return decide(JobSetView.of(obj, now, jobs, has_service=has_service))


def names(jobs: list[Object]) -> list[str]:
    return [each["metadata"]["name"] for each in jobs]


def condition(decision: JobSetDecision) -> tuple[str, str]:
    assert decision.status is not None
    last = decision.status["conditions"][-1]
    return last["reason"], last["message"]


EARLY, LATE = "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"


def test_the_job_that_failed_first_is_named() -> None:
    decision = decided(jobset(), job("train-a-0", failed_at=LATE), job("train-a-1", failed_at=EARLY))
    assert condition(decision) == (
        "FailedJobs",
        "jobset failed due to one or more job failures (first failed job: train-a-1)",
    )


def test_the_first_matching_rule_decides_whichever_job_failed_first() -> None:
    rules = [
        {"name": "one", "action": "FailJobSet", "onJobFailureMessagePatterns": ["("]},  # does not parse: never matches
        {"name": "two", "action": "FailJobSet", "onJobFailureMessagePatterns": ["^disk .*full$"]},
        {"name": "three", "action": "RestartJobSetAndIgnoreMaxRestarts"},
    ]
    obj = jobset(failurePolicy={"maxRestarts": 0, "rules": rules})
    failed = job("train-a-0", failed_at=EARLY, message="("), job("train-a-1", failed_at=LATE, message="disk is full")
    assert condition(decided(obj, *failed)) == (
        "FailJobSetFailurePolicyAction",
        "applying FailJobSet failure policy action (first failed job: train-a-1)",
    )
    only = decided(obj, failed[0])
    assert only.status is not None
    assert only.status["restarts"] == 1
    assert "restartsCountTowardsMax" not in only.status


def test_a_restart_recreates_each_job_when_its_predecessor_is_gone() -> None:
    obj = jobset(failurePolicy={"maxRestarts": 3}, status={"restarts": 1})
    old, leaving = job("train-a-0"), job("train-a-1", deletionTimestamp="2026-01-01T00:00:00Z")
    decision = decided(obj, old, leaving)
    assert (names(decision.delete_jobs), names(decision.create_jobs)) == (["train-a-0"], [])
    decision = decided(obj, leaving)
    assert (names(decision.delete_jobs), names(decision.create_jobs)) == ([], ["train-a-0"])
    labels = decision.create_jobs[0]["spec"]["template"]["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/restart-attempt"] == "1"


def test_blocking_recreate_waits_for_all_of_them() -> None:
    obj = jobset(failurePolicy={"maxRestarts": 3, "restartStrategy": "BlockingRecreate"}, status={"restarts": 1})
    assert decided(obj, job("train-a-1")).create_jobs == []
    assert names(decided(obj).create_jobs) == ["train-a-0", "train-a-1"]


def test_a_single_job_restarts_alone_and_counts_together_with_restarts_of_the_jobset() -> None:
    rule = {"name": "one", "action": "RestartJob"}
    obj = jobset(
        failurePolicy={"maxRestarts": 2, "rules": [rule]}, status={"restarts": 1, "restartsCountTowardsMax": 1}
    )
    failed = job("train-a-1", attempt=1, failed_at=EARLY)
    decision = decided(obj, job("train-a-0", attempt=1), failed)
    assert decision.status is not None
    assert decision.status["replicatedJobsStatus"][0]["jobRestarts"] == [0, 1]
    obj["status"] = decision.status
    decision = decided(obj, job("train-a-0", attempt=1), failed)
    assert names(decision.delete_jobs) == ["train-a-1"]
    again = job("train-a-1", attempt=1, failed_at=EARLY)
    again["metadata"]["labels"]["jobset.sigs.k8s.io/job-restart-attempt"] = "1"
    assert condition(decided(obj, again))[0] == "ReachedMaxRestarts"


def test_a_finished_jobset_deletes_active_jobs_and_expires_after_its_time_to_live() -> None:
    ended = {"type": "Completed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    obj = jobset(ttlSecondsAfterFinished=10, status={"conditions": [ended], "restarts": 0})
    decision = decided(obj, job("train-a-0"), after=4)
    assert (names(decision.delete_jobs), decision.delete_jobset, decision.wake_after) == (["train-a-0"], False, 6)
    assert decided(obj, after=10).delete_jobset


def test_another_manager_or_a_deletion_leaves_the_jobset_alone() -> None:
    assert decided(jobset(managedBy="example.com/other")) == JobSetDecision()
    obj = jobset()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decided(obj) == JobSetDecision()
    assert names(decided(jobset(managedBy="jobset.sigs.k8s.io/jobset-controller")).create_jobs)


def test_labels_that_another_client_changed_do_not_stop_the_controller() -> None:
    odd = job("train-a-0")
    odd["metadata"]["labels"] = {"jobset.sigs.k8s.io/restart-attempt": "many"}
    assert names(decided(jobset(), odd).create_jobs) == ["train-a-1"]


def test_a_stored_negative_number_of_jobs_counts_as_none() -> None:
    """A server that runs upstream's webhook accepts it."""
    obj = jobset({"name": "a", "replicas": -1}, {"name": "b", "replicas": 2})
    complete = job("train-b-0")
    complete["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    decision = decided(obj, complete)
    assert names(decision.create_jobs) == ["train-b-1"]
    assert decision.status is not None
    assert not any(each["type"] == "Completed" for each in decision.status.get("conditions") or ())


def test_only_missing_claims_are_created() -> None:
    obj = jobset(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "x"}}, {"metadata": {"name": "y"}}]}])
    assert names(decide(JobSetView.of(obj, NOW, (), has_service=True)).claims) == ["x-train", "y-train"]
    assert names(decide(JobSetView.of(obj, NOW, (), has_service=True, claims=["x-train"])).claims) == ["y-train"]


def test_a_restarted_jobset_that_fails_at_once_was_never_ready() -> None:
    restarting = {"type": "RestartingJobSet", "status": "True", "reason": "DefaultFailurePolicy", "message": ""}
    status = {"restarts": 1, "restartsCountTowardsMax": 1, "conditions": [restarting]}
    obj = jobset({"name": "a", "replicas": 1}, status=status, failurePolicy={"maxRestarts": 1})
    failed = decided(obj, job("train-a-0", attempt=1, failed_at=EARLY))
    assert [event.reason for event in failed.events] == ["JobSetFailed", "ReachedMaxRestarts"]


def test_a_jobset_without_replicated_jobs_has_no_status() -> None:
    obj = jobset()
    obj["spec"]["replicatedJobs"] = []
    assert decided({**obj, "spec": {**obj["spec"], "suspend": None}}).status is None


def test_a_jobset_of_two_billion_jobs_is_created_in_passes() -> None:
    obj = jobset({"name": "a", "replicas": 2**31 - 1}, {"name": "b", "replicas": 2})
    first = decided(obj)
    assert names(first.create_jobs) == [f"train-a-{index}" for index in range(500)]
    assert first.wake_after == 0
    second = decided(obj, *(job(name) for name in names(first.create_jobs)))
    assert names(second.create_jobs)[0] == "train-a-500"
    assert len(second.create_jobs) == 500


def test_the_last_pass_over_many_jobs_does_not_ask_for_another() -> None:
    obj = jobset({"name": "a", "replicas": 499}, {"name": "b", "replicas": 1})
    decision = decided(obj)
    assert names(decision.create_jobs)[-1] == "train-b-0"
    assert decision.wake_after is None


def test_a_restart_of_one_of_two_billion_jobs_is_counted_in_a_short_list() -> None:
    rule = {"name": "one", "action": "RestartJob"}
    obj = jobset({"name": "a", "replicas": 2**31 - 1}, failurePolicy={"maxRestarts": 3, "rules": [rule]})
    decision = decided(obj, job("train-a-0", failed_at=EARLY), job("train-a-1"))
    assert decision.status is not None
    restarts = decision.status["replicatedJobsStatus"][0]["jobRestarts"]
    assert (restarts[:2], len(restarts)) == ([1, 0], 100_000)


def test_a_time_to_live_beyond_the_calendar_deletes_nothing() -> None:
    completed = {"type": "Completed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": ""}
    obj = jobset(status={"restarts": 0, "conditions": [completed]}, ttlSecondsAfterFinished=2**62)
    decision = decided(obj)
    assert not decision.delete_jobset
    assert decision.wake_after is not None
