"""Decisions about a Job: the cases that need a clock, a crash, or a pod in a rare state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.jobs import NOW, at, conditions, pod, stored

from torchyard.api.objects import Object
from torchyard.core.job.backoff import NO_FAILURES, Backoff, delay_seconds
from torchyard.core.job.decide import MOST_UNCOUNTED, JobDecision, decide
from torchyard.core.job.ttl import seconds_left
from torchyard.core.job.view import JobView

RUNS: Object = {"startTime": "2026-01-01T12:00:00Z"}


def decision_for(job: Object, *pods: Object, now: float = 0, backoff: Backoff = NO_FAILURES) -> JobDecision:
    return decide(JobView(job, at(now), pods, backoff))


def test_the_backoff_doubles_from_10_seconds_to_10_minutes() -> None:
    """Conformance point 17."""
    assert [delay_seconds(failures) for failures in range(9)] == [0, 10, 20, 40, 80, 160, 320, 600, 600]


def test_a_failed_pod_is_replaced_after_the_backoff() -> None:
    """Conformance point 17."""
    failed = pod("Failed", ended=at(0))
    early = decision_for(stored(status=RUNS), failed, now=4)
    assert (early.create, early.wake_after) == ([], 6.0)
    assert len(decision_for(stored(status=RUNS), failed, now=10).create) == 1
    second = pod("Failed", ended=at(15))
    again = decision_for(stored(status=RUNS), second, now=16, backoff=early.backoff)
    assert (again.create, again.wake_after, again.backoff) == ([], 19.0, Backoff(2, at(15)))


def test_a_success_resets_the_backoff() -> None:
    """Conformance point 17."""
    job = stored(status=RUNS, completions=3)
    decision = decision_for(
        job, pod("Succeeded", ended=at(30)), pod("Failed", ended=at(20)), now=31, backoff=Backoff(4, at(9))
    )
    assert (len(decision.create), decision.backoff) == (1, Backoff(0, None))


def test_each_index_has_its_own_backoff() -> None:
    """Conformance point 18."""
    job = stored(status=RUNS, completionMode="Indexed", completions=3, parallelism=3, backoffLimitPerIndex=5)
    pods = [pod("Failed", index=0, ended=at(0), failures=1), pod("Failed", index=1, ended=at(0), failures=0)]
    first = decision_for(job, *pods, pod(index=2), now=12)
    created = [(item["metadata"]["generateName"], item["metadata"]["annotations"]) for item in first.create]
    note = "batch.kubernetes.io/job-index-failure-count"
    assert [(name, notes[note]) for name, notes in created] == [("work-1-", "1")]
    assert first.wake_after == 8.0
    # a pod that is replaced in this pass keeps its failure count until the replacement exists
    assert first.release == []
    later = decision_for(job, *pods, pod(index=2), pod(index=1, failures=1), now=13)
    assert later.release == [pods[1]]


def test_an_ignored_failure_is_released_without_being_counted() -> None:
    """Conformance point 22."""
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}}]
    failed = pod("Failed", code=9, ended=at(-60))
    decision = decision_for(stored(status=RUNS, podFailurePolicy={"rules": rules}, backoffLimit=0), failed)
    assert decision.release == [failed]
    assert decision.status is not None
    assert decision.status["uncountedTerminatedPods"] == {}
    assert not decision.status.get("conditions")


def test_a_finished_pod_is_recorded_before_its_finalizer_is_removed_and_counted_after() -> None:
    """Conformance point 37."""
    good, bad = pod("Succeeded", uid="good"), pod("Failed", uid="bad", ended=at(-60))
    job = stored(status=RUNS, completions=3, parallelism=2)
    noted = decision_for(job, good, bad)
    assert noted.status is not None
    assert noted.status["uncountedTerminatedPods"] == {"succeeded": ["good"], "failed": ["bad"]}
    assert ("succeeded" in noted.status, "failed" in noted.status) == (False, False)
    assert noted.release == [good, bad]
    # A crash before any finalizer was removed: the same again, and nothing is recorded twice.
    again = decision_for({**job, "status": noted.status}, good, bad)
    assert again.release == [good, bad]
    assert again.status is None or again.status["uncountedTerminatedPods"] == noted.status["uncountedTerminatedPods"]
    # A crash after one of them: only that pod is counted. A deleted pod has lost its finalizer too.
    half = decision_for({**job, "status": noted.status}, pod("Succeeded", uid="good", tracked=False), bad)
    assert half.status is not None
    assert (half.status["succeeded"], half.status["uncountedTerminatedPods"]) == (1, {"failed": ["bad"]})
    whole = decision_for({**job, "status": half.status}, pod("Succeeded", uid="good", tracked=False))
    assert whole.status is not None
    assert (whole.status["succeeded"], whole.status["failed"]) == (1, 1)
    assert whole.status["uncountedTerminatedPods"] == {}


def test_at_most_500_finished_pods_are_recorded_at_a_time() -> None:
    """Conformance point 37."""
    pods = [pod("Succeeded", uid=f"pod-{number}") for number in range(MOST_UNCOUNTED + 20)]
    decision = decision_for(stored(status=RUNS, completions=1000, parallelism=1000), *pods)
    assert decision.status is not None
    assert len(decision.status["uncountedTerminatedPods"]["succeeded"]) == len(decision.release) == MOST_UNCOUNTED


def test_the_final_condition_comes_after_the_interim_one_was_stored() -> None:
    """Conformance point 25."""
    done = pod("Succeeded", tracked=False)
    first = decision_for(stored(status={**RUNS, "succeeded": 1}), done)
    assert conditions(first.status) == [("SuccessCriteriaMet", "True")]
    second = decision_for(stored(status=first.status), done)
    assert conditions(second.status) == [("SuccessCriteriaMet", "True"), ("Complete", "True")]
    assert [event.reason for event in second.events] == ["Completed"]
    assert decision_for(stored(status=second.status), done).status is None


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_a_finished_job_only_releases_pods(kind: str) -> None:
    ended = {**RUNS, "conditions": [{"type": kind, "status": "True"}]}
    running = pod()
    decision = decision_for(stored(status=ended), running)
    assert (decision.status, decision.create, decision.delete, decision.release) == (None, [], [], [running])


def test_an_indexed_job_deletes_duplicates_and_pods_beyond_its_completions() -> None:
    job = stored(status=RUNS, completionMode="Indexed", completions=2, parallelism=2)
    survivor, double = pod(index=0, ready=True), pod("Pending", index=0)
    beyond, lost = pod(index=7), pod()
    decision = decision_for(job, survivor, double, beyond, lost, pod(index=1))
    assert {item.pod["metadata"]["uid"] for item in decision.delete} == {
        item["metadata"]["uid"] for item in (double, beyond, lost)
    }
    assert all(item.is_surplus for item in decision.delete)


def test_more_successes_than_completions_get_an_event() -> None:
    job = stored(status={**RUNS, "succeeded": 3, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]})
    assert [event.reason for event in decision_for(job).events] == ["TooManySucceededPods", "Completed"]


def test_time_to_live_counts_from_the_condition_that_ended_the_job() -> None:
    """Conformance point 32."""
    ended = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    job = stored(status={"conditions": [ended]}, ttlSecondsAfterFinished=100)
    assert seconds_left(job, NOW + timedelta(seconds=30)) == 70.0
    assert seconds_left(stored(ttlSecondsAfterFinished=0), NOW) is None
    assert seconds_left(stored(status={"conditions": [ended]}), NOW) is None


def test_a_job_that_was_suspended_before_its_first_status_has_a_start_time_when_its_pods_finish_it() -> None:
    job = stored(completions=None, parallelism=1, suspend=True)
    first = decision_for(job, pod("Succeeded")).status
    last = decision_for({**job, "status": first}, pod("Succeeded", tracked=False)).status
    last = decision_for({**job, "status": last}, pod("Succeeded", tracked=False)).status or last
    assert last is not None and last["startTime"], last
    assert ("Complete", "True") in conditions(last)
