"""Decisions about a job in every situation of upstream's tests, and in those that they leave out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.pytorchjobs import NOW, at, conditions, job, pod, replica, service

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.api.times import LATEST, to_rfc3339
from torchyard.core.pytorchjob.decide import PyTorchJobDecision, decide, is_managed_here
from torchyard.core.pytorchjob.failures import is_retryable
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView, Restarts

M, W = names.MASTER, names.WORKER
STARTED = {"startTime": to_rfc3339(NOW)}


def condition(kind: str, status: str = "True", *, since: float = 0) -> Object:
    reason = f"PyTorchJob{kind}"
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": to_rfc3339(at(since))}


def decision_for(
    manifest: Object, *pods: Object, services: list[Object] | None = None, now: float = 0, **settings: Any
) -> PyTorchJobDecision:
    view = PyTorchJobView.of(manifest, at(now), pods=pods, services=services or [])
    return decide(view, PyTorchJobSettings(**settings))


def created(decision: PyTorchJobDecision, kind: str = "Pod") -> list[str]:
    return [item["metadata"]["name"] for item in decision.create if item["kind"] == kind]


def deleted(decision: PyTorchJobDecision, kind: str = "Pod") -> list[str]:
    return [item.object["metadata"]["name"] for item in decision.delete if item.object["kind"] == kind]


def event_reasons(decision: PyTorchJobDecision) -> list[str]:
    return [event.reason for event in decision.events]


def message(decision: PyTorchJobDecision, kind: str) -> str:
    assert decision.status
    return next(str(condition["message"]) for condition in decision.status["conditions"] if condition["type"] == kind)


def test_a_new_job_gets_its_replicas_master_first_and_a_start_time() -> None:
    decision = decision_for(job())
    assert created(decision) == created(decision, "Service") == ["train-master-0", "train-worker-0", "train-worker-1"]
    assert conditions(decision.status) == [("Created", "True")]
    assert decision.status and decision.status["startTime"] == to_rfc3339(NOW)
    assert message(decision, "Created") == "PyTorchJob train is created."
    assert event_reasons(decision) == []


def test_two_passes_over_the_same_view_decide_the_same() -> None:
    first, second = decision_for(job()), decision_for(job())
    assert first == second


def test_a_job_in_its_desired_state_needs_no_writes() -> None:
    pods = [pod(M, 0), pod(W, 0), pod(W, 1)]
    services = [service(M, 0), service(W, 0), service(W, 1)]
    first = decision_for(job(status=STARTED), *pods, services=services)
    assert first.status
    again = decision_for(job(status=first.status), *pods, services=services, now=5)
    assert again == PyTorchJobDecision()


def test_running_and_success_with_a_master() -> None:
    first = decision_for(job(), pod(M, 0), pod(W, 0, "Pending"), pod(W, 1))
    assert conditions(first.status) == [("Created", "True"), ("Running", "True")]
    assert message(first, "Running") == "PyTorchJob train is running."
    assert first.status and first.status["replicaStatuses"][W]["active"] == 1
    assert first.status["replicaStatuses"][W]["selector"] == (
        "training.kubeflow.org/job-name=train,training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )
    done = decision_for(job(status=first.status), pod(M, 0, "Succeeded", code=0), pod(W, 0), pod(W, 1), now=9)
    assert conditions(done.status) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert message(done, "Succeeded") == "PyTorchJob train is successfully completed."
    assert done.status and done.status["completionTime"] == to_rfc3339(at(9))
    assert event_reasons(done) == [messages.EXITED, messages.HAS_SUCCEEDED]
    after = decision_for(job(status=done.status), pod(M, 0, "Succeeded", code=0), pod(W, 0), pod(W, 1), now=10)
    assert after.status and after.status["replicaStatuses"][W]["succeeded"] == 2
    assert "active" not in after.status["replicaStatuses"][W]
    assert after.create == []


def test_success_without_a_master_needs_all_workers_or_one_of_an_elastic_job() -> None:
    pods = [pod(W, 0, "Succeeded", code=0), pod(W, 1)]
    assert conditions(decision_for(job(master=None), *pods).status)[-1] == ("Running", "True")
    elastic = decision_for(job(master=None, elasticPolicy={}), *pods)
    assert conditions(elastic.status) == [("Created", "True"), ("Succeeded", "True")]
    assert message(elastic, "Succeeded") == "PyTorchJob default/train successfully completed."


def test_the_master_decides_even_if_a_worker_fails_permanently_at_the_same_time() -> None:
    manifest = job(policy="Never")
    decision = decision_for(manifest, pod(M, 0, "Succeeded", code=0), pod(W, 0, "Failed", code=1), pod(W, 1))
    assert conditions(decision.status)[-1] == ("Succeeded", "True")


def test_restart_policy_never_fails_the_job_and_keeps_the_pod() -> None:
    decision = decision_for(job(policy="Never"), pod(M, 0), pod(W, 0, "Failed", code=1), pod(W, 1))
    assert conditions(decision.status) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]
    assert message(decision, "Failed") == "PyTorchJob train is failed because 1 Worker replica(s) failed."
    assert decision.status and decision.status["completionTime"]
    assert not decision.delete
    assert not decision.create


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_failed_pod_is_recreated_alone(policy: str) -> None:
    running = decision_for(job(policy=policy), pod(M, 0), pod(W, 0), pod(W, 1))
    failed = decision_for(job(policy=policy, status=running.status), pod(M, 0), pod(W, 0, "Failed"), pod(W, 1))
    assert conditions(failed.status) == [("Created", "True"), ("Restarting", "True")]
    assert message(failed, "Restarting") == "job train is restarting because Worker replica(s) failed."
    assert deleted(failed) == ["train-worker-0"]
    assert event_reasons(failed) == [messages.IS_RESTARTING]
    gone = decision_for(job(policy=policy, status=failed.status), pod(M, 0), pod(W, 1))
    assert created(gone) == ["train-worker-0"]
    assert conditions(gone.status or failed.status)[-1] == ("Restarting", "True")
    again = decision_for(job(policy=policy, status=gone.status or failed.status), pod(M, 0), pod(W, 0), pod(W, 1))
    assert conditions(again.status) == [("Created", "True"), ("Running", "True")]


@pytest.mark.parametrize(
    ("code", "again"),
    [(1, False), (2, False), (3, False), (127, False), (128, True), (130, True), (138, True), (None, True)],
)
def test_exit_codes_of_signals_are_retryable_and_errors_are_not(code: int | None, again: bool) -> None:
    """Row U15."""
    assert is_retryable(code) is again


def test_a_retryable_exit_code_deletes_the_pod_and_another_fails_the_job() -> None:
    """Rows C7, C8."""
    manifest = job(policy="ExitCode")
    again = decision_for(manifest, pod(M, 0), pod(W, 0, "Failed", code=137), pod(W, 1))
    assert deleted(again) == ["train-worker-0"]
    for_good = decision_for(manifest, pod(M, 0), pod(W, 0, "Failed", code=1), pod(W, 1))
    assert message(for_good, "Failed") == 'job "train" is failing because "Worker" replica(s) failed.'
    assert for_good.status and for_good.status["completionTime"]
    assert [event.kind for event in for_good.events if event.reason == messages.HAS_FAILED] == ["Warning"]


def test_scaling_down_deletes_the_highest_indexes_and_scaling_up_creates_missing_ones() -> None:
    """Rows C9, C10."""
    pods = [pod(M, 0), *(pod(W, index) for index in range(4))]
    services = [service(M, 0), *(service(W, index) for index in range(4))]
    down = decision_for(job(worker=2), *pods, services=services)
    assert deleted(down) == deleted(down, "Service") == ["train-worker-3", "train-worker-2"]
    assert down.status and down.status["replicaStatuses"][W]["active"] == 2
    up = decision_for(job(worker=6), *pods, services=services)
    assert created(up) == created(up, "Service") == ["train-worker-4", "train-worker-5"]


def test_a_gap_is_filled() -> None:
    """Row U13."""
    assert created(decision_for(job(worker=3), pod(M, 0), pod(W, 0), pod(W, 2))) == ["train-worker-1"]


def test_a_terminating_pod_counts_as_failed_and_is_not_replaced_yet() -> None:
    """Row U10."""
    decision = decision_for(job(status=STARTED), pod(M, 0), pod(W, 0, going=at(20)), pod(W, 1))
    assert decision.status and decision.status["replicaStatuses"][W]["failed"] == 1
    assert decision.create == [] or created(decision) == []
    assert message(decision, "Restarting") == "PyTorchJob train is restarting because 1 Worker replica(s) failed."


def test_a_pod_on_a_lost_node_is_force_deleted() -> None:
    waiting = decision_for(job(status=STARTED), pod(M, 0), pod(W, 0, going=at(0)), pod(W, 1), now=10)
    assert waiting.wake_after == 20
    lost = decision_for(job(status=STARTED), pod(M, 0), pod(W, 0, going=at(0)), pod(W, 1), now=31)
    assert [(item.object["metadata"]["name"], item.force) for item in lost.delete] == [("train-worker-0", True)]


def test_an_evicted_pod_is_replaced() -> None:
    evicted = pod(W, 0, "Failed")
    evicted["status"] = {"phase": "Failed", "reason": "Evicted"}
    assert deleted(decision_for(job(policy="ExitCode"), pod(M, 0), evicted, pod(W, 1))) == ["train-worker-0"]


@pytest.mark.parametrize(
    ("policy", "remaining"),
    [("None", ["train-master-0", "train-worker-0", "train-worker-1"]), ("Running", ["train-master-0"]), ("All", [])],
)
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_clean_pod_policy_decides_which_pods_a_finished_job_keeps(policy: str, remaining: list[str], end: str) -> None:
    """Rows U6, C2."""
    pods = [pod(M, 0, "Succeeded", code=0), pod(W, 0), pod(W, 1, "Pending")]
    services = [service(M, 0), service(W, 0), service(W, 1)]
    status = {**STARTED, "conditions": [condition(end)]}
    decision = decision_for(job(run={"cleanPodPolicy": policy}, status=status), *pods, services=services)
    gone = [item for item in ("train-master-0", "train-worker-0", "train-worker-1") if item not in remaining]
    assert deleted(decision) == deleted(decision, "Service") == gone
    assert decision.create == []


def test_pods_of_a_finished_job_are_not_recreated() -> None:
    status = {**STARTED, "conditions": [condition("Succeeded")]}
    assert decision_for(job(status=status)).create == []


def test_a_job_created_suspended_has_no_start_time() -> None:
    """Row T3."""
    decision = decision_for(job(run={"suspend": True}))
    assert conditions(decision.status) == [("Created", "True"), ("Suspended", "True")]
    assert decision.status and "startTime" not in decision.status
    assert decision.create == []
    assert event_reasons(decision) == [messages.IS_SUSPENDED]
    assert decision_for(job(run={"suspend": True}, status=decision.status), now=9) == PyTorchJobDecision()


def test_a_running_job_can_be_suspended_and_resumed() -> None:
    """Row T4."""
    pods = [pod(M, 0), pod(W, 0), pod(W, 1)]
    services = [service(M, 0), service(W, 0), service(W, 1)]
    running = decision_for(job(), *pods, services=services)
    paused = decision_for(job(run={"suspend": True}, status=running.status), *pods, services=services, now=10)
    assert conditions(paused.status) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert paused.status and paused.status["conditions"][1]["reason"] == messages.IS_SUSPENDED
    assert paused.status["startTime"] == to_rfc3339(NOW)
    assert all("active" not in status for status in paused.status["replicaStatuses"].values())
    assert len(deleted(paused)) == len(deleted(paused, "Service")) == 3
    resumed = decision_for(job(status=paused.status), now=20)
    assert conditions(resumed.status) == [("Created", "True"), ("Running", "False"), ("Suspended", "False")]
    assert resumed.status and resumed.status["startTime"] == to_rfc3339(at(20))
    assert len(created(resumed)) == 3
    assert event_reasons(resumed) == [messages.IS_RESUMED]
    again = decision_for(job(status=resumed.status), *pods, services=services, now=30)
    assert conditions(again.status) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]


@pytest.mark.parametrize("created", [0, 20])
@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_pods_still_terminating_after_a_resume_are_not_counted(policy: str, phase: str, created: float) -> None:
    """Deleted at 20, resumed at 20; a program that exits with 0 on SIGTERM has not finished the job."""
    status = {"startTime": to_rfc3339(NOW), "conditions": [condition("Running", "False"), condition("Suspended")]}
    leftover = [pod(kind, index, phase, going=at(50)) for kind, index in ((M, 0), (W, 0), (W, 1))]
    for obj in leftover:
        obj["metadata"] |= {"creationTimestamp": to_rfc3339(at(created)), "deletionGracePeriodSeconds": 30}
    resumed = decision_for(job(policy=policy, status=status), *leftover, now=20)
    later = decision_for(job(policy=policy, status=resumed.status), *leftover, now=22)
    for decision in (resumed, later):
        state = dict(conditions(decision.status or resumed.status))
        assert "Succeeded" not in state and "Failed" not in state and "Restarting" not in state
        assert decision.restarts is None
    replaced = decision_for(job(policy=policy, status=later.status or resumed.status), now=25)
    assert [item["kind"] for item in replaced.create].count("Pod") == 3


def test_a_pod_deleted_by_hand_after_a_resume_is_a_failure() -> None:
    status = {"startTime": to_rfc3339(at(20)), "conditions": [condition("Suspended", "False", since=20)]}
    gone = pod(M, 0, going=at(51))
    gone["metadata"] |= {"creationTimestamp": to_rfc3339(at(20)), "deletionGracePeriodSeconds": 30}
    decision = decision_for(job(policy="Never", status=status), gone, now=22)
    assert dict(conditions(decision.status))["Failed"] == "True"


@pytest.mark.parametrize(
    ("manager", "ours"),
    [(None, True), ("", True), (names.MANAGED_HERE, True), (names.MANAGED_BY_MULTIKUEUE, False), ("other", False)],
)
def test_a_job_of_another_manager_is_ignored(manager: str | None, ours: bool) -> None:
    """Rows U9, T5."""
    manifest = job(run={"managedBy": manager} if manager is not None else {})
    assert is_managed_here(manifest) is ours
    assert (decision_for(manifest) != PyTorchJobDecision()) is ours


@pytest.mark.parametrize(
    ("limit", "restarts", "past"), [(0, 0, False), (0, 1, True), (3, 2, False), (3, 3, True), (None, 99, False)]
)
def test_container_restarts_count_towards_the_backoff_limit(limit: int | None, restarts: int, past: bool) -> None:
    """Row U7."""
    run = {} if limit is None else {"backoffLimit": limit}
    decision = decision_for(job(run=run), pod(M, 0), pod(W, 0, restarts=restarts), pod(W, 1))
    assert ("Failed" in dict(conditions(decision.status))) is past
    if past:
        assert message(decision, "Failed") == "Job train has failed because it has reached the specified backoff limit"
        assert decision.status and decision.status["completionTime"]


def test_the_limit_is_a_sum_over_all_replicas() -> None:
    """Row C4."""
    pods = [pod(M, 0, restarts=1), *(pod(W, index, restarts=1) for index in range(3))]
    assert conditions(decision_for(job(worker=3, run={"backoffLimit": 4}), *pods).status)[-1] == ("Failed", "True")
    assert conditions(decision_for(job(worker=3, run={"backoffLimit": 5}), *pods).status)[-1] == ("Running", "True")


def test_recreated_pods_count_towards_the_backoff_limit_once() -> None:
    manifest = job(policy="ExitCode", run={"backoffLimit": 2})
    first = decision_for(manifest, pod(M, 0), pod(W, 0, "Failed", code=137, uid="a"), pod(W, 1))
    assert first.restarts == Restarts(1, ("a",))
    remembered = {names.RESTARTS: first.restarts.text()}
    manifest = job(policy="ExitCode", run={"backoffLimit": 2}, annotations=remembered, status=first.status)
    again = decision_for(manifest, pod(M, 0), pod(W, 0, "Failed", code=137, uid="a"), pod(W, 1))
    assert again.restarts is None
    assert deleted(again) == ["train-worker-0"]
    assert event_reasons(again) == [messages.EXITED]
    second = decision_for(manifest, pod(M, 0), pod(W, 0, "Failed", code=137, uid="b"), pod(W, 1))
    assert conditions(second.status)[-1] == ("Failed", "True")
    assert second.delete == []


def test_a_restart_of_the_whole_job_recreates_every_replica_and_counts_once() -> None:
    manifest = job(annotations={names.RESTART_SCOPE: names.WHOLE_JOB})
    decision = decision_for(manifest, pod(M, 0, "Failed", code=1), pod(W, 0, "Failed", code=1), pod(W, 1))
    assert deleted(decision) == ["train-master-0", "train-worker-0", "train-worker-1"]
    assert decision.restarts and decision.restarts.count == 1


@pytest.mark.parametrize(("limit", "now", "past"), [(0, 0, True), (2, 0, False), (2, 2, True), (2, 1.5, False)])
def test_a_deadline_wakes_the_controller(limit: int, now: float, past: bool) -> None:
    """Rows U8, C3."""
    decision = decision_for(
        job(run={"activeDeadlineSeconds": limit}, status=STARTED), pod(M, 0), pod(W, 0), pod(W, 1), now=now
    )
    assert ("Failed" in dict(conditions(decision.status))) is past
    assert decision.wake_after == (None if past else limit - now)
    if past:
        expected = "Job train has failed because it was active longer than specified deadline"
        assert message(decision, "Failed") == expected


@pytest.mark.parametrize(
    ("ttl", "end", "now", "wakes", "goes"),
    [
        (None, "Succeeded", 5, None, False),
        (3, "Succeeded", 2, 1, False),
        (3, "Failed", 2, 1, False),
        (3, "Succeeded", 3, None, True),
        (0, "Failed", 0, None, True),
        (2**63 - 1, "Failed", 0, (LATEST - NOW).total_seconds(), False),
    ],
)
def test_a_finished_job_is_deleted_after_its_ttl(
    ttl: int | None, end: str, now: float, wakes: float | None, goes: bool
) -> None:
    """Rows U16, C5."""
    run = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    for completion in ({"completionTime": to_rfc3339(NOW)}, {}):
        status = {**STARTED, **completion, "conditions": [condition(end)]}
        decision = decision_for(job(run=run, status=status), now=now)
        assert (decision.wake_after, decision.delete_job) == (wakes, goes)


def test_a_suspended_finished_job_is_kept() -> None:
    """Row C5."""
    status = {**STARTED, "conditions": [condition("Succeeded")]}
    assert not decision_for(job(run={"suspend": True, "ttlSecondsAfterFinished": 0}, status=status), now=9).delete_job


def test_a_running_job_has_no_ttl() -> None:
    assert decision_for(job(run={"ttlSecondsAfterFinished": 0}, status=STARTED), pod(M, 0), now=99).delete_job is False


@pytest.mark.parametrize(
    ("workers", "warning"),
    [
        (1, "Worker.replicas is 1, but elasticPolicy.minReplicas is 2: training waits for more workers"),
        (2, None),
        (4, None),
        (
            5,
            "Worker.replicas is 5, but elasticPolicy.maxReplicas is 4: "
            "the additional workers wait until a member leaves",
        ),
    ],
)
def test_a_number_of_workers_outside_the_elastic_limits_is_created_with_an_event(
    workers: int, warning: str | None
) -> None:
    decision = decision_for(job(master=None, worker=workers, elasticPolicy={"minReplicas": 2, "maxReplicas": 4}))
    events = [event for event in decision.events if event.reason == "ReplicasOutOfRange"]
    assert [(item.kind, item.message) for item in events] == ([("Warning", warning)] if warning else [])
    assert all(item.once for item in events)
    assert len([item for item in decision.create if item["kind"] == "Pod"]) == workers


def test_each_pod_failure_gets_one_event() -> None:
    stuck = pod(W, 0, "Pending")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    stuck["status"]["containerStatuses"] = [{"name": "pytorch", "restartCount": 0, "state": waiting}]
    homeless = pod(W, 1, "Pending")
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    homeless["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    decision = decision_for(job(), pod(M, 0), stuck, homeless)
    assert [(event.reason, event.message, bool(event.once)) for event in decision.events] == [
        ("ImagePullBackOff", "Error pod train-worker-0 container pytorch waiting message: no such image", True),
        ("Unschedulable", "Error pod train-worker-1 condition message: no room", True),
    ]


def test_a_template_with_its_own_restart_policy_gets_an_event() -> None:
    decision = decision_for(job(master=replica(1, spec={"restartPolicy": "Never"}), worker=None))
    assert event_reasons(decision) == [messages.RESTART_POLICY_SET]


def test_a_thousand_workers_are_decided_in_one_pass() -> None:
    decision = decision_for(job(worker=1000))
    assert len(created(decision)) == len(created(decision, "Service")) == 1001
