"""Which logs of a cluster are read for progress, how often, and what is new in them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.progress.lines import LineParser, epochs_of
from torchyard.core.progress.log_polling import (
    INTERVAL,
    MAX_INTERVAL,
    MAX_LINES,
    MAX_READS_PER_SECOND,
    PATIENT_LOOKS,
    LogTail,
    PollSchedule,
    slim_training_pod,
    training_container,
)
from torchyard.core.progress.owners import job_of


def pod(*names: str, **metadata: Any) -> Object:
    containers = [{"name": name, "command": ["train", "--epochs", "3"], "env": []} for name in names]
    status = {"phase": "Running", "podIP": "10.0.0.1"}
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata}, "spec": {"containers": containers}} | {
        "status": status
    }


@pytest.mark.parametrize(
    ("names", "chosen"),
    [(("sidecar", "node"), "node"), (("sidecar", "pytorch"), "pytorch"), (("first", "second"), "first")],
)
def test_the_log_of_the_training_is_read_and_not_that_of_a_sidecar(names: tuple[str, ...], chosen: str) -> None:
    assert (training_container(pod(*names)) or {})["name"] == chosen


def test_a_pod_may_name_its_training_container() -> None:
    annotations = {"kubectl.kubernetes.io/default-container": "second"}
    assert (training_container(pod("first", "second", annotations=annotations)) or {})["name"] == "second"


def test_the_cache_keeps_of_a_pod_whose_log_it_is_and_how_many_epochs_it_has() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    whole = pod("node", "sidecar", ownerReferences=[owner], annotations={"large": "x" * 1000})
    slim = slim_training_pod(whole)
    assert job_of(slim) == job_of(whole)
    assert epochs_of(slim["spec"]["containers"][0]) == 3
    assert slim["status"] == {"phase": "Running"}
    assert "annotations" not in slim["metadata"]


def tail() -> LogTail:
    return LogTail(LineParser())


def texts(log: LogTail, data: bytes, *, is_cut: bool = False) -> list[str]:
    return [text for _, text in log.added(data, is_cut=is_cut)]


def test_a_line_is_read_once() -> None:
    log, first = tail(), b"2026-01-01T00:00:01.000000001Z a\n"
    assert texts(log, first) == ["a"]
    assert texts(log, first) == []
    assert texts(log, first + b"2026-01-01T01:00:02.5+01:00 b c\r50%\n") == ["b c\r50%"]


def test_what_has_no_time_is_left_out() -> None:
    assert (
        texts(tail(), b"unable to retrieve container logs for containerd://x\n\xff\xfe y\n2026-01-01T00:00:01Z\n") == []
    )


def test_of_a_log_that_is_too_long_fewer_lines_are_asked_for() -> None:
    log = tail()
    assert texts(log, b"2026-01-01T00:00:01Z a\n2026-01-01T00:00:02Z cut", is_cut=True) == ["a"]
    assert log.lines == MAX_LINES // 2
    for _ in range(20):
        texts(log, b"", is_cut=True)
    assert log.lines == 1


def test_a_log_that_reports_nothing_is_read_less_and_less() -> None:
    schedule: PollSchedule[str] = PollSchedule()
    schedule.add("a", 0.0)
    now, times = 0.0, []
    while now < 1000:
        if schedule.due(now):
            times.append(now)
            schedule.looked("a", now, has_reported=False)
        now += 1.0
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[: PATIENT_LOOKS - 1] == [INTERVAL] * (PATIENT_LOOKS - 1)
    assert pauses[-1] == MAX_INTERVAL
    schedule.looked("a", now, has_reported=True)
    assert schedule.due(now + INTERVAL) == ["a"]


def test_many_logs_are_read_in_turn_at_the_highest_rate() -> None:
    schedule: PollSchedule[int] = PollSchedule()
    for key in range(1000):
        schedule.add(key, 0.0)
    reads: list[int] = []
    for tick in range(4 * 60):
        due = schedule.due(tick / 4)
        reads += due
        for key in due:
            schedule.looked(key, tick / 4, has_reported=True)
    assert len(reads) <= MAX_READS_PER_SECOND * 61
    assert set(reads) == set(range(1000))


def test_a_log_that_is_being_read_is_not_due_and_one_that_is_gone_is_forgotten() -> None:
    schedule: PollSchedule[str] = PollSchedule()
    schedule.add("a", 0.0)
    assert schedule.due(0.0) == ["a"]
    assert schedule.due(100.0) == []
    schedule.forget("a")
    schedule.looked("a", 100.0, has_reported=True)
    assert schedule.due(200.0) == []
