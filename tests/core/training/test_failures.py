"""Which container of a job failed first."""

from __future__ import annotations

from typing import Any

from torchyard.core.training.failures import FailedContainer, container_failures, first_of


def pod(name: str, code: int, finished: str, *, restarted: bool = False) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "finishedAt": finished}}
    states = {"lastState": ended, "state": {"running": {}}} if restarted else {"state": ended}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [{"name": "node", **states}]}}


def first_failure(pods: list[dict[str, Any]]) -> FailedContainer | None:
    return first_of(failure for pod in pods for failure in container_failures(pod))


def test_the_earliest_failure_counts() -> None:
    failure = first_failure([pod("b", 1, "2026-01-01T00:00:02Z"), pod("a", 2, "2026-01-01T00:00:01Z")])
    assert failure is not None
    assert (failure.pod, failure.exit_code) == ("a", 2)


def test_a_container_that_a_signal_ended_counts_only_without_another() -> None:
    pods = [pod("killed", 143, "2026-01-01T00:00:01Z"), pod("failed", 1, "2026-01-01T00:00:02Z")]
    failure = first_failure(pods)
    assert failure is not None
    assert failure.pod == "failed"


def test_a_container_that_was_restarted_has_its_log_before() -> None:
    failure = first_failure([pod("a", 1, "2026-01-01T00:00:01Z", restarted=True)])
    assert failure is not None
    assert failure.restarted


def test_success_is_no_failure() -> None:
    assert first_failure([pod("a", 0, "2026-01-01T00:00:01Z")]) is None
