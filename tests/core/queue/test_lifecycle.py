"""What time, pods, checks and stopped queues do to a workload that has quota, and to one that lost it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.queues import workload

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.api.times import to_rfc3339
from torchyard.core.queue import lifecycle
from torchyard.core.queue.lifecycle import QueueSettings, WorkloadOutcome, evaluate
from torchyard.core.queue.workload_info import to_timestamp

START = "2026-01-01T12:00:00Z"
NOW = to_timestamp(START)
SETTINGS = QueueSettings(timeout=300, recovery_timeout=100, backoff_base=60, backoff_max=3600)


def moment(at: float) -> str:
    return to_rfc3339(datetime.fromtimestamp(at, UTC))


def condition(type: str, status: str = "True", reason: str = "", *, since: float = NOW, message: str = "m") -> Object:
    at = moment(since)
    return {"type": type, "status": status, "reason": reason or type, "message": message, "lastTransitionTime": at}


def running(*more: Object, spec: Object | None = None, **status: Any) -> Object:
    """Admitted at NOW."""
    admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 1}]}
    conditions = [condition(messages.QUOTA_RESERVED), condition(messages.ADMITTED), *more]
    obj = workload("a", **(spec or {}))
    return {**obj, "status": {"admission": admission, "conditions": conditions, **status}}


def seen(
    obj: Object, after: float, settings: QueueSettings = SETTINGS, *, stops: dict[str, str] | None = None
) -> WorkloadOutcome:
    return evaluate(obj, NOW + after, settings, stops=lambda: stops or {}, has_owner=True)


def of(outcome: WorkloadOutcome, type: str) -> Object:
    assert outcome.status is not None
    found = find(outcome.status["conditions"], type)
    assert found is not None
    return found


WAITING = condition(messages.PODS_READY, "False", messages.REASON_WAIT_FOR_START)
LOST = condition(messages.PODS_READY, "False", messages.REASON_WAIT_FOR_RECOVERY, since=NOW + 1000)


def test_pods_have_until_the_timeout_to_become_ready() -> None:
    outcome = seen(running(WAITING), 299)
    assert outcome.status is None
    assert outcome.evaluate_after == pytest.approx(1)


def test_pods_ready_timeout_evicts() -> None:
    outcome = seen(running(WAITING), 300)
    evicted = of(outcome, messages.EVICTED)
    assert (evicted["status"], evicted["reason"]) == ("True", messages.REASON_PODS_READY_TIMEOUT)
    assert evicted["message"] == "Exceeded the PodsReady timeout default/a"
    assert [one.reason for one in outcome.events] == ["EvictedDueToPodsReadyTimeout"]
    assert outcome.status is not None
    assert outcome.status["admission"], "held until nothing runs any more"


PAUSES = {"the first time": (None, 1, 60), "the second": (1, 2, 120), "the third": (2, 3, 240), "later": (9, 10, 3600)}


@pytest.mark.parametrize(("before", "count", "pause"), PAUSES.values(), ids=PAUSES)
def test_requeue_backoff_doubles_up_to_the_maximum(before: int | None, count: int, pause: float) -> None:
    state = {} if before is None else {"requeueState": {"count": before, "requeueAt": None}}
    outcome = seen(running(WAITING, **state), 300)
    assert outcome.status is not None
    requeue = outcome.status["requeueState"]
    assert requeue["count"] == count
    assert to_timestamp(requeue["requeueAt"]) == NOW + 300 + pause


def test_requeue_backoff_has_a_stable_jitter_by_workload() -> None:
    """The more of a pause may be added, the further apart they are; the same workload draws the same each time."""
    spread = QueueSettings(timeout=300, backoff_base=60, backoff_jitter=0.5)

    def pause(uid: str, count: int = 0, settings: QueueSettings = spread) -> float:
        obj = running(WAITING, requeueState={"count": count})
        outcome = seen({**obj, "metadata": {**obj["metadata"], "uid": uid}}, 300, settings)
        assert outcome.status is not None
        return to_timestamp(outcome.status["requeueState"]["requeueAt"]) - NOW - 300

    drawn = [pause(f"uid-{number}") for number in range(20)]
    assert drawn == [pause(f"uid-{number}") for number in range(20)]
    assert len(set(drawn)) > 5
    assert all(60 <= one <= 90 for one in drawn)
    assert pause("uid-1", 1) != 2 * pause("uid-1"), "drawn anew for each try"
    assert pause("uid-1", 20) == spread.backoff_max
    assert pause("uid-1", settings=QueueSettings(timeout=300)) == 60, "Kueue's own share is too small to be seen"


def test_backoff_limit_deactivates() -> None:
    limited = QueueSettings(timeout=300, backoff_limit=2)
    outcome = seen(running(WAITING, requeueState={"count": 2}), 300, limited)
    target = of(outcome, messages.DEACTIVATION_TARGET)
    assert target["reason"] == messages.REASON_REQUEUING_LIMIT_EXCEEDED
    assert target["message"] == "exceeding the maximum number of re-queuing retries (2)"
    assert outcome.deactivate


def test_recovery_timeout_starts_when_a_pod_is_lost() -> None:
    assert seen(running(LOST), 1099).evaluate_after == pytest.approx(1)
    assert of(seen(running(LOST), 1100), messages.EVICTED)["reason"] == messages.REASON_PODS_READY_TIMEOUT


@pytest.mark.parametrize(
    "ready", [[], [condition(messages.PODS_READY, "True", messages.REASON_STARTED)]], ids=["unknown", "all ready"]
)
def test_ready_or_unreported_pods_have_no_timeout(ready: list[Object]) -> None:
    outcome = seen(running(*ready), 10**6)
    assert (outcome.status, outcome.evaluate_after) == (None, None)


def test_waiting_for_pods_can_be_turned_off() -> None:
    assert seen(running(WAITING), 10**6, QueueSettings(pods_ready=False)).status is None


def requeued(at: float) -> Object:
    when = moment(at)
    state = {"count": 1, "requeueAt": when}
    reserved = condition(messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
    evicted = condition(messages.EVICTED, "True", messages.REASON_PODS_READY_TIMEOUT)
    return {**workload("a"), "status": {"conditions": [reserved, evicted], "requeueState": state}}


def test_workload_is_requeued_when_its_backoff_ends() -> None:
    assert seen(requeued(NOW + 60), 20).evaluate_after == pytest.approx(40)
    outcome = seen(requeued(NOW + 60), 60)
    assert of(outcome, messages.REQUEUED)["reason"] == messages.REASON_BACKOFF_FINISHED
    assert outcome.status is not None
    assert outcome.status["requeueState"] == {"count": 1, "requeueAt": None}


def test_maximum_execution_time_includes_past_executions() -> None:
    obj = running(spec={"maximumExecutionTimeSeconds": 100}, accumulatedPastExecutionTimeSeconds=70)
    assert seen(obj, 20).evaluate_after == pytest.approx(10)
    outcome = seen(obj, 30)
    target = of(outcome, messages.DEACTIVATION_TARGET)
    assert (target["reason"], target["message"]) == (
        messages.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED,
        "The maximum execution time (100s) exceeded",
    )
    assert outcome.deactivate


def test_release_accumulates_execution_time_and_resets_conditions() -> None:
    evicted = running(condition(messages.EVICTED, "True", messages.REASON_PREEMPTED, message="for another"))
    released = lifecycle.release_quota({**evicted, "status": {**evicted["status"]}}, NOW + 42)
    assert released["accumulatedPastExecutionTimeSeconds"] == 42
    assert released["admission"] is None
    found = {one["type"]: (one["status"], one["reason"], one["message"]) for one in released["conditions"]}
    assert found[messages.QUOTA_RESERVED] == ("False", messages.REASON_PENDING, "for another")
    assert found[messages.ADMITTED] == ("False", messages.REASON_NO_RESERVATION, "The workload has no reservation")
    assert found[messages.REQUEUED][:2] == ("True", messages.REASON_PREEMPTED)


CHECKS = {
    "Retry": (messages.EVICTED, messages.REASON_ADMISSION_CHECK, False),
    "Rejected": (messages.DEACTIVATION_TARGET, messages.REASON_ADMISSION_CHECK, True),
}


@pytest.mark.parametrize(("state", "type", "reason", "ends"), [(key, *value) for key, value in CHECKS.items()])
def test_admission_check_state_evicts_or_deactivates(state: str, type: str, reason: str, ends: bool) -> None:
    outcome = seen(running(admissionChecks=[{"name": "budget", "state": state}]), 1)
    assert of(outcome, type)["reason"] == reason
    assert outcome.deactivate is ends


STOPS = {
    "held queues let it run": ({"ClusterQueue": "Hold"}, None),
    "a drained cluster queue": ({"ClusterQueue": "HoldAndDrain"}, messages.REASON_CLUSTER_QUEUE_STOPPED),
    "a drained local queue": ({"LocalQueue": "HoldAndDrain"}, messages.REASON_LOCAL_QUEUE_STOPPED),
}


@pytest.mark.parametrize(("stops", "reason"), STOPS.values(), ids=STOPS)
def test_hold_and_drain_evicts_and_hold_does_not(stops: dict[str, str], reason: str | None) -> None:
    outcome = seen(running(), 1, stops=stops)
    assert (outcome.status is None) if reason is None else (of(outcome, messages.EVICTED)["reason"] == reason)


READY = {
    "first": (None, False, ("False", messages.REASON_WAIT_FOR_START, "Not all pods are ready or succeeded")),
    "then": (
        WAITING,
        True,
        ("True", messages.REASON_STARTED, "All pods reached readiness and the workload is running"),
    ),
    "a loss": (
        condition(messages.PODS_READY, "True", messages.REASON_STARTED),
        False,
        ("False", messages.REASON_WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery"),
    ),
    "a recovery": (
        LOST,
        True,
        ("True", messages.REASON_RECOVERED, "All pods reached readiness and the workload is running"),
    ),
}


@pytest.mark.parametrize(("before", "is_ready", "expected"), READY.values(), ids=READY)
def test_pods_ready_condition_has_kueues_reason_and_message(
    before: Object | None, is_ready: bool, expected: tuple[str, ...]
) -> None:
    status = lifecycle.set_pods_ready(running(*([before] if before else [])), is_ready, NOW)
    assert status is not None
    found = find(status["conditions"], messages.PODS_READY)
    assert found is not None
    assert (found["status"], found["reason"], found["message"]) == expected
    assert lifecycle.set_pods_ready({**running(), "status": status}, is_ready, NOW) is None, "and only once"


def test_reactivated_workload_starts_over() -> None:
    conditions = [
        condition(messages.QUOTA_RESERVED, "False", messages.REASON_PENDING),
        condition(messages.EVICTED, "True", "DeactivatedDueToRequeuingLimitExceeded"),
        condition(messages.DEACTIVATION_TARGET, "True", messages.REASON_REQUEUING_LIMIT_EXCEEDED),
    ]
    outcome = seen({**workload("a"), "status": {"conditions": conditions, "requeueState": {"count": 3}}}, 1)
    assert of(outcome, messages.REQUEUED)["reason"] == messages.REASON_REACTIVATED
    assert outcome.status is not None
    assert find(outcome.status["conditions"], messages.DEACTIVATION_TARGET) is None
    assert outcome.status["requeueState"] is None
