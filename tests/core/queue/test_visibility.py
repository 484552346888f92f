"""Positions of queued workloads, and estimates of their start."""

from __future__ import annotations

from tests.support.queues import workload

from torchyard.api.objects import Object
from torchyard.core.queue.visibility import estimate_start, workload_positions

QUEUES = {("default", "q"): "team"}


def timestamp(at: int) -> str:
    return f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"


def admitted_workload(name: str, start: int, end: int | None) -> Object:
    """A workload that was admitted at `start`, and finished at `end` if there is one."""
    obj = workload(name, at=start)
    times = [("QuotaReserved", start), ("Admitted", start), *([("Finished", end)] if end is not None else [])]
    conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": timestamp(at)}
        for kind, at in times
    ]
    return {**obj, "status": {"admission": {"clusterQueue": "team", "podSetAssignments": []}, "conditions": conditions}}


def test_positions_follow_the_scheduling_order() -> None:
    positions = workload_positions(
        [workload("late", at=9), workload("urgent", at=9, priority=5), workload("early", at=1)], QUEUES
    )
    assert {position.info.key[1]: position.position for position in positions} == {"urgent": 0, "early": 1, "late": 2}
    assert {position.cluster_queue for position in positions} == {"team"}


def test_start_is_estimated_from_finished_workloads() -> None:
    past = [admitted_workload(f"p{index}", 0, 100) for index in range(3)]
    positions = workload_positions(
        [*past, admitted_workload("now", 200, None), workload("next", at=210), workload("then", at=211)], QUEUES
    )
    by_name = {position.info.key[1]: position for position in positions}
    now = by_name["now"].info.reserved_at + 40
    first, second = (estimate_start(by_name[name], positions, now) for name in ("next", "then"))
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (60.0, 160.0)
    assert first.deviation == 0


def test_estimated_deviation_grows_with_the_position() -> None:
    past = [admitted_workload(f"p{index}", 0, end) for index, end in enumerate((50, 100, 150))]
    positions = workload_positions(
        [*past, admitted_workload("now", 200, None), *(workload(f"w{i}", at=210 + i) for i in range(9))], QUEUES
    )
    pending = [position for position in positions if position.position is not None]
    estimates = [estimate_start(position, positions, 0.0) for position in pending]
    deviations = [estimate.deviation for estimate in estimates if estimate is not None]
    assert deviations == sorted(deviations)
    assert deviations[0] < deviations[-1]


def test_no_estimate_without_finished_workloads() -> None:
    positions = workload_positions([workload("a")], QUEUES)
    assert estimate_start(positions[0], positions, 0.0) is None
