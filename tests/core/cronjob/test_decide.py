"""Decisions about a CronJob, with the test's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.cronjob.decide import CronJobDecision, decide, record_start

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = int(NOW.timestamp()) // 60


def cron(*, last: float | None = 3600, active: list[Object] | None = None, **spec: Any) -> Object:
    status: Object = {} if last is None else {"lastScheduleTime": to_rfc3339(NOW - timedelta(seconds=last))}
    if active:
        status["active"] = active
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"template": {}}}
    creation_time = to_rfc3339(NOW - timedelta(hours=2))
    return {
        "metadata": {"name": "tick", "namespace": "default", "uid": "cron", "creationTimestamp": creation_time},
        "spec": {"schedule": "* * * * *", "jobTemplate": template, "concurrencyPolicy": "Allow", **spec},
        "status": status,
    }


def job(name: str, condition: str = "", *, hours: int = 0) -> Object:
    end = to_rfc3339(NOW - timedelta(hours=hours))
    status: Object = {"startTime": end, "completionTime": end}
    if condition:
        status["conditions"] = [{"type": condition, "status": "True"}]
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}, "status": status}


def ref(name: str) -> Object:
    return {"name": name, "uid": name, "namespace": "default"}


def event_reasons(decision: CronJobDecision) -> list[str]:
    return [event.reason for event in decision.events]


def test_a_jobs_name_has_the_scheduled_minute_and_an_annotation_the_time() -> None:
    decision = decide(cron(last=60, timeZone="Europe/Berlin"), [], NOW)
    assert decision.create is not None
    metadata = decision.create["metadata"]
    assert metadata["name"] == f"tick-{MINUTE}"
    assert metadata["labels"] == {"a": "b"}
    stamp = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    assert metadata["annotations"] == {"c": "d", stamp: "2026-01-01T13:00:00+01:00"}
    assert metadata["ownerReferences"][0]["controller"] is True
    assert decision.wake_after == pytest.approx(30.1)


def test_a_job_is_not_started_twice() -> None:
    assert decide(cron(last=30), [], NOW).create is None
    status: Object = {}
    record_start(status, job(f"tick-{MINUTE}"), NOW.replace(second=0))
    assert (status["lastScheduleTime"], [item["name"] for item in status["active"]]) == (
        "2026-01-01T12:00:00Z",
        [f"tick-{MINUTE}"],
    )


def test_a_new_cron_job_counts_from_its_creation() -> None:
    assert decide(cron(last=None, schedule="0 0 * * *"), [], NOW).create is None
    assert decide(cron(last=None, schedule="0 11 * * *"), [], NOW).create is not None


@pytest.mark.parametrize(
    ("policy", "creates", "replaces", "events"),
    [("Allow", True, 0, []), ("Forbid", False, 0, ["JobAlreadyActive"]), ("Replace", True, 1, [])],
)
def test_what_happens_while_an_earlier_job_runs(policy: str, creates: bool, replaces: int, events: list[str]) -> None:
    decision = decide(cron(active=[ref("old")], concurrencyPolicy=policy), [job("old")], NOW)
    assert (decision.create is not None, len(decision.replace), event_reasons(decision)) == (creates, replaces, events)
    assert bool(decision.status.get("active")) == (policy != "Replace")


def test_a_start_after_its_deadline_is_missed_with_an_event() -> None:
    late = cron(schedule="0 12 * * *", startingDeadlineSeconds=10)
    decision = decide(late, [], NOW)
    assert (decision.create, event_reasons(decision)) == (None, ["MissSchedule"])
    assert decision.events[0].message == "Missed scheduled time to start a job: Thu, 01 Jan 2026 12:00:00 +0000"
    assert decide(cron(schedule="0 12 * * *", startingDeadlineSeconds=60), [], NOW).create is not None


def test_more_than_100_missed_starts_get_an_event_and_the_last_is_started() -> None:
    decision = decide(cron(last=101 * 60), [], NOW)
    assert decision.create is not None
    assert (decision.create["metadata"]["name"], event_reasons(decision)) == (f"tick-{MINUTE}", ["TooManyMissedTimes"])


def test_a_suspended_or_terminating_cron_job_starts_nothing_but_updates_its_status() -> None:
    books = [job("done", "Complete", hours=1)]
    for stopped in (cron(active=[ref("done")], suspend=True), cron(active=[ref("done")])):
        if not stopped["spec"].get("suspend"):
            stopped["metadata"]["deletionTimestamp"] = to_rfc3339(NOW)
        decision = decide(stopped, books, NOW)
        assert (decision.create, decision.wake_after, event_reasons(decision)) == (None, None, ["SawCompletedJob"])
        assert decision.status["lastSuccessfulTime"] == "2026-01-01T11:00:30Z"
        assert "active" not in decision.status


def test_jobs_created_or_deleted_by_others_get_events() -> None:
    decision = decide(cron(last=30, active=[ref("lost")]), [job("by-hand")], NOW)
    assert event_reasons(decision) == ["MissingJob", "UnexpectedJob"]


def test_finished_jobs_beyond_the_history_limits_are_deleted() -> None:
    jobs = [job(f"good-{hours}", "Complete", hours=hours) for hours in range(5)]
    jobs += [job(f"bad-{hours}", "Failed", hours=hours) for hours in range(3)]
    limits: Object = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 0}
    decision = decide(cron(last=30, **limits), jobs, NOW)
    assert [item["metadata"]["name"] for item in decision.delete_history] == [
        "good-4",
        "good-3",
        "bad-2",
        "bad-1",
        "bad-0",
    ]


def test_a_schedule_that_never_matches_gets_an_event() -> None:
    decision = decide(cron(schedule="59 23 31 2 *"), [], NOW)
    assert (decision.create, decision.wake_after, event_reasons(decision)) == (None, None, ["InvalidSchedule"])


def test_a_starting_deadline_of_any_length_is_a_deadline() -> None:
    assert decide(cron(last=60, startingDeadlineSeconds=2**63 - 1), [], NOW).create is not None
