"""Timeouts, pods, admission checks and stopped queues: what they do to workloads with and without quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.queues import queue, workload

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.api.times import to_rfc3339
from torchyard.core.queue import lifecycle
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.lifecycle import WorkloadOutcome, evaluate
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.specs import ClusterQueueSpec
from torchyard.core.queue.workload_info import to_timestamp

START = "2026-01-01T12:00:00Z"
NOW = to_timestamp(START)
SETTINGS = QueueSettings(timeout=300, recovery_timeout=100, backoff_base=60, backoff_max=3600)


def timestamp(at: float) -> str:
    return to_rfc3339(datetime.fromtimestamp(at, UTC))


def condition(type: str, status: str = "True", reason: str = "", *, since: float = NOW, message: str = "m") -> Object:
    at = timestamp(since)
    return {"type": type, "status": status, "reason": reason or type, "message": message, "lastTransitionTime": at}


def admitted_workload(*more: Object, spec: Object | None = None, **status: Any) -> Object:
    """A workload that was admitted at NOW."""
    admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 1}]}
    conditions = [condition(messages.QUOTA_RESERVED), condition(messages.ADMITTED), *more]
    obj = workload("a", **(spec or {}))
    return {**obj, "status": {"admission": admission, "conditions": conditions, **status}}


def evaluate_after(
    obj: Object, after: float, settings: QueueSettings = SETTINGS, *, stops: dict[str, str] | None = None
) -> WorkloadOutcome:
    return evaluate(obj, NOW + after, settings, stops=lambda: stops or {}, has_owner=True)


def condition_of(outcome: WorkloadOutcome, type: str) -> Object:
    assert outcome.status is not None
    result = find(outcome.status["conditions"], type)
    assert result is not None
    return result


WAITING = condition(messages.PODS_READY, "False", messages.REASON_WAIT_FOR_START)
LOST = condition(messages.PODS_READY, "False", messages.REASON_WAIT_FOR_RECOVERY, since=NOW + 1000)


def test_pods_have_until_the_timeout_to_become_ready() -> None:
    outcome = evaluate_after(admitted_workload(WAITING), 299)
    assert outcome.status is None
    assert outcome.evaluate_after == pytest.approx(1)


def test_pods_ready_timeout_evicts() -> None:
    outcome = evaluate_after(admitted_workload(WAITING), 300)
    evicted = condition_of(outcome, messages.EVICTED)
    assert (evicted["status"], evicted["reason"]) == ("True", messages.REASON_PODS_READY_TIMEOUT)
    assert evicted["message"] == "Exceeded the PodsReady timeout default/a"
    assert [event.reason for event in outcome.events] == ["EvictedDueToPodsReadyTimeout"]
    assert outcome.status is not None
    assert outcome.status["admission"], "the quota is held until the pods have stopped"


BACKOFFS = {
    "the first time": (None, 1, 60),
    "the second": (1, 2, 120),
    "the third": (2, 3, 240),
    "later": (9, 10, 3600),
    "after more retries than a float can double": (1100, 1101, 3600),
}


@pytest.mark.parametrize(("before", "count", "backoff"), BACKOFFS.values(), ids=BACKOFFS)
def test_requeue_backoff_doubles_up_to_the_maximum(before: int | None, count: int, backoff: float) -> None:
    state = {} if before is None else {"requeueState": {"count": before, "requeueAt": None}}
    outcome = evaluate_after(admitted_workload(WAITING, **state), 300)
    assert outcome.status is not None
    requeue = outcome.status["requeueState"]
    assert requeue["count"] == count
    assert to_timestamp(requeue["requeueAt"]) == NOW + 300 + backoff


def test_a_backoff_beyond_the_calendar_ends_with_it() -> None:
    unlimited = QueueSettings(timeout=300, backoff_base=60, backoff_max=1e15)
    outcome = evaluate_after(admitted_workload(WAITING, requeueState={"count": 90}), 300, unlimited)
    assert outcome.status is not None
    assert outcome.status["requeueState"]["requeueAt"] == "9999-12-31T23:59:59Z"


def test_requeue_backoff_has_a_stable_jitter_by_workload() -> None:
    """The jitter is the same each time it is computed for one workload, and differs by workload and retry."""
    jittered = QueueSettings(timeout=300, backoff_base=60, backoff_jitter=0.5)

    def backoff(uid: str, count: int = 0, settings: QueueSettings = jittered) -> float:
        obj = admitted_workload(WAITING, requeueState={"count": count})
        outcome = evaluate_after({**obj, "metadata": {**obj["metadata"], "uid": uid}}, 300, settings)
        assert outcome.status is not None
        return to_timestamp(outcome.status["requeueState"]["requeueAt"]) - NOW - 300

    backoffs = [backoff(f"uid-{number}") for number in range(20)]
    assert backoffs == [backoff(f"uid-{number}") for number in range(20)]
    assert len(set(backoffs)) > 5
    assert all(60 <= seconds <= 90 for seconds in backoffs)
    assert backoff("uid-1", 1) != 2 * backoff("uid-1"), "the jitter differs by retry"
    assert backoff("uid-1", 20) == jittered.backoff_max
    assert backoff("uid-1", settings=QueueSettings(timeout=300)) == 60, "Kueue's jitter is less than a second"


def test_backoff_limit_deactivates() -> None:
    limited = QueueSettings(timeout=300, backoff_limit=2)
    outcome = evaluate_after(admitted_workload(WAITING, requeueState={"count": 2}), 300, limited)
    target = condition_of(outcome, messages.DEACTIVATION_TARGET)
    assert target["reason"] == messages.REASON_REQUEUING_LIMIT_EXCEEDED
    assert target["message"] == "exceeding the maximum number of re-queuing retries"
    assert outcome.deactivate


def test_recovery_timeout_starts_when_a_pod_is_lost() -> None:
    assert evaluate_after(admitted_workload(LOST), 1099).evaluate_after == pytest.approx(1)
    assert (
        condition_of(evaluate_after(admitted_workload(LOST), 1100), messages.EVICTED)["reason"]
        == messages.REASON_PODS_READY_TIMEOUT
    )


def test_ready_pods_have_no_timeout() -> None:
    outcome = evaluate_after(admitted_workload(condition(messages.PODS_READY, "True", messages.REASON_STARTED)), 10**6)
    assert (outcome.status, outcome.evaluate_after) == (None, None)


def test_pods_that_no_controller_reports_about_time_out() -> None:
    assert evaluate_after(admitted_workload(), 299).evaluate_after == pytest.approx(1)
    assert condition_of(evaluate_after(admitted_workload(), 300), messages.EVICTED)["reason"] == "PodsReadyTimeout"


@pytest.mark.parametrize(("ready", "cause"), [(WAITING, "WaitForStart"), (LOST, "WaitForRecovery")])
def test_evictions_of_pods_that_are_not_ready_are_counted_by_cause(ready: Object, cause: str) -> None:
    outcome = evaluate_after(admitted_workload(ready), 10**6)
    assert outcome.status is not None
    assert outcome.status["schedulingStats"]["evictions"] == [
        {"reason": "PodsReadyTimeout", "underlyingCause": cause, "count": 1}
    ]


def test_waiting_for_pods_can_be_turned_off() -> None:
    assert evaluate_after(admitted_workload(WAITING), 10**6, QueueSettings(pods_ready=False)).status is None


def requeued(at: float) -> Object:
    when = timestamp(at)
    state = {"count": 1, "requeueAt": when}
    reserved = condition(messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
    evicted = condition(messages.EVICTED, "True", messages.REASON_PODS_READY_TIMEOUT)
    waits = condition(messages.REQUEUED, "False", messages.REASON_PODS_READY_TIMEOUT)
    return {**workload("a"), "status": {"conditions": [reserved, evicted, waits], "requeueState": state}}


def test_workload_is_requeued_when_its_backoff_ends() -> None:
    assert evaluate_after(requeued(NOW + 60), 20).evaluate_after == pytest.approx(40)
    outcome = evaluate_after(requeued(NOW + 60), 60)
    assert condition_of(outcome, messages.REQUEUED)["reason"] == messages.REASON_BACKOFF_FINISHED
    assert outcome.status is not None
    assert outcome.status["requeueState"] == {"count": 1, "requeueAt": None}


def test_maximum_execution_time_includes_past_executions() -> None:
    obj = admitted_workload(spec={"maximumExecutionTimeSeconds": 100}, accumulatedPastExecutionTimeSeconds=70)
    assert evaluate_after(obj, 20).evaluate_after == pytest.approx(10)
    outcome = evaluate_after(obj, 30)
    target = condition_of(outcome, messages.DEACTIVATION_TARGET)
    assert (target["reason"], target["message"]) == (
        messages.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED,
        "exceeding the maximum execution time",
    )
    assert outcome.deactivate


def test_release_accumulates_execution_time_and_resets_conditions() -> None:
    evicted = admitted_workload(condition(messages.EVICTED, "True", messages.REASON_PREEMPTED, message="for another"))
    released = lifecycle.release_quota({**evicted, "status": {**evicted["status"]}}, NOW + 42)
    assert released["accumulatedPastExecutionTimeSeconds"] == 42
    assert released["admission"] is None
    conditions = {
        entry["type"]: (entry["status"], entry["reason"], entry["message"]) for entry in released["conditions"]
    }
    assert conditions[messages.QUOTA_RESERVED] == ("False", messages.REASON_PENDING, "for another")
    assert conditions[messages.ADMITTED] == ("False", messages.REASON_NO_RESERVATION, "The workload has no reservation")
    assert conditions[messages.REQUEUED][:2] == ("True", messages.REASON_PREEMPTED)


CHECKS = {
    "Retry": (messages.EVICTED, messages.REASON_ADMISSION_CHECK, False),
    "Rejected": (messages.DEACTIVATION_TARGET, messages.REASON_ADMISSION_CHECK, True),
}


@pytest.mark.parametrize(("state", "type", "reason", "deactivates"), [(key, *value) for key, value in CHECKS.items()])
def test_admission_check_state_evicts_or_deactivates(state: str, type: str, reason: str, deactivates: bool) -> None:
    outcome = evaluate_after(admitted_workload(admissionChecks=[{"name": "budget", "state": state}]), 1)
    assert condition_of(outcome, type)["reason"] == reason
    assert outcome.deactivate is deactivates


STOPS = {
    "Hold keeps running workloads": ({"ClusterQueue": "Hold"}, None),
    "HoldAndDrain of the ClusterQueue": ({"ClusterQueue": "HoldAndDrain"}, messages.REASON_CLUSTER_QUEUE_STOPPED),
    "HoldAndDrain of the LocalQueue": ({"LocalQueue": "HoldAndDrain"}, messages.REASON_LOCAL_QUEUE_STOPPED),
}


@pytest.mark.parametrize(("stops", "reason"), STOPS.values(), ids=STOPS)
def test_hold_and_drain_evicts_and_hold_does_not(stops: dict[str, str], reason: str | None) -> None:
    outcome = evaluate_after(admitted_workload(), 1, stops=stops)
    assert (outcome.status is None) if reason is None else (condition_of(outcome, messages.EVICTED)["reason"] == reason)


READY = {
    "initial": (None, False, ("False", messages.REASON_WAIT_FOR_START, "Not all pods are ready or succeeded")),
    "all ready": (
        WAITING,
        True,
        ("True", messages.REASON_STARTED, "All pods reached readiness and the workload is running"),
    ),
    "pod lost": (
        condition(messages.PODS_READY, "True", messages.REASON_STARTED),
        False,
        ("False", messages.REASON_WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery"),
    ),
    "recovered": (
        LOST,
        True,
        ("True", messages.REASON_RECOVERED, "All pods reached readiness and the workload is running"),
    ),
}


@pytest.mark.parametrize(("before", "is_ready", "expected"), READY.values(), ids=READY)
def test_pods_ready_condition_has_kueues_reason_and_message(
    before: Object | None, is_ready: bool, expected: tuple[str, ...]
) -> None:
    status = lifecycle.set_pods_ready(admitted_workload(*([before] if before else [])), is_ready, NOW)
    assert status is not None
    ready = find(status["conditions"], messages.PODS_READY)
    assert ready is not None
    assert (ready["status"], ready["reason"], ready["message"]) == expected
    assert lifecycle.set_pods_ready({**admitted_workload(), "status": status}, is_ready, NOW) is None, "no second write"


def test_deactivated_workload_starts_over_when_it_is_active_again() -> None:
    target = condition(messages.DEACTIVATION_TARGET, "True", messages.REASON_REQUEUING_LIMIT_EXCEEDED)
    inactive = admitted_workload(target, spec={"active": False}, requeueState={"count": 2})
    evicted = evaluate_after(inactive, 1).status
    assert evicted is not None
    assert find(evicted["conditions"], messages.DEACTIVATION_TARGET) is None
    assert evicted["requeueState"] is None
    released = lifecycle.release_quota({**inactive, "status": evicted}, NOW)
    active = {**workload("a"), "status": released}
    assert condition_of(evaluate_after(active, 2), messages.REQUEUED)["reason"] == messages.REASON_REACTIVATED


def test_check_that_asks_for_a_later_retry_delays_the_next_attempt() -> None:
    checks = [
        {"name": name, "state": "Retry", "message": "", "lastTransitionTime": START, "requeueAfterSeconds": seconds}
        for name, seconds in (("a", 60), ("b", 600), ("c", None))
    ]
    outcome = evaluate_after(admitted_workload(admissionChecks=checks), 1)
    assert condition_of(outcome, messages.EVICTED)["reason"] == messages.REASON_ADMISSION_CHECK
    assert outcome.status is not None
    assert to_timestamp(outcome.status["requeueState"]["requeueAt"]) == NOW + 600


def test_reactivated_workload_starts_over() -> None:
    conditions = [
        condition(messages.QUOTA_RESERVED, "False", messages.REASON_PENDING),
        condition(messages.EVICTED, "True", "DeactivatedDueToRequeuingLimitExceeded"),
        condition(messages.DEACTIVATION_TARGET, "True", messages.REASON_REQUEUING_LIMIT_EXCEEDED),
    ]
    outcome = evaluate_after({**workload("a"), "status": {"conditions": conditions, "requeueState": {"count": 3}}}, 1)
    assert condition_of(outcome, messages.REQUEUED)["reason"] == messages.REASON_REACTIVATED
    assert outcome.status is not None
    assert find(outcome.status["conditions"], messages.DEACTIVATION_TARGET) is None
    assert outcome.status["requeueState"] is None


@pytest.mark.parametrize(
    ("reason", "status", "restarted"),
    [
        ("ClusterQueueStopped", "True", "ClusterQueueRestarted"),
        ("LocalQueueStopped", "True", "LocalQueueRestarted"),
        ("PodsReadyTimeout", "False", "PodsReadyTimeout"),
    ],
)
def test_workload_of_a_stopped_queue_is_requeued_when_it_gets_quota_again(
    reason: str, status: str, restarted: str
) -> None:
    obj = workload("one")
    obj["metadata"] |= {"name": "one", "namespace": "default", "uid": "uid"}
    obj["status"] = {"conditions": [condition(messages.REQUEUED, "False", reason)]}
    result = lifecycle.reserve_quota(obj, ClusterQueueSpec.parse(queue()), Assignment(), NOW)
    requeued = find(result["conditions"], messages.REQUEUED)
    assert requeued is not None
    assert (requeued["status"], requeued["reason"]) == (status, restarted)
