"""The line in front of a queue, as people are told of it."""

from __future__ import annotations

from tests.support.queues import workload

from torchyard.api.objects import Object
from torchyard.core.queue.visibility import estimate_start, workload_positions

QUEUES = {("default", "q"): "team"}


def moment(at: int) -> str:
    return f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"


def ran(name: str, start: int, end: int | None) -> Object:
    """A workload that was admitted, and perhaps has ended."""
    obj = workload(name, at=start)
    times = [("QuotaReserved", start), ("Admitted", start), *([("Finished", end)] if end is not None else [])]
    conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": moment(at)}
        for kind, at in times
    ]
    return {**obj, "status": {"admission": {"clusterQueue": "team", "podSetAssignments": []}, "conditions": conditions}}


def test_positions_follow_the_scheduling_order() -> None:
    found = workload_positions(
        [workload("late", at=9), workload("urgent", at=9, priority=5), workload("early", at=1)], QUEUES
    )
    assert {one.info.key[1]: one.position for one in found} == {"urgent": 0, "early": 1, "late": 2}
    assert {one.cluster_queue for one in found} == {"team"}


def test_start_is_estimated_from_finished_workloads() -> None:
    past = [ran(f"p{index}", 0, 100) for index in range(3)]
    found = workload_positions(
        [*past, ran("now", 200, None), workload("next", at=210), workload("then", at=211)], QUEUES
    )
    by_name = {one.info.key[1]: one for one in found}
    now = by_name["now"].info.reserved_at + 40
    first, second = (estimate_start(by_name[name], found, now) for name in ("next", "then"))
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (60.0, 160.0)
    assert first.deviation == 0


def test_estimated_deviation_grows_with_the_position() -> None:
    past = [ran(f"p{index}", 0, end) for index, end in enumerate((50, 100, 150))]
    found = workload_positions(
        [*past, ran("now", 200, None), *(workload(f"w{i}", at=210 + i) for i in range(9))], QUEUES
    )
    waiting = [one for one in found if one.position is not None]
    errors = [guess.deviation for one in waiting if (guess := estimate_start(one, found, 0.0)) is not None]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_no_estimate_without_finished_workloads() -> None:
    found = workload_positions([workload("a")], QUEUES)
    assert estimate_start(found[0], found, 0.0) is None
