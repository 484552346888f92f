"""The line in front of a queue, as people are told of it."""

from __future__ import annotations

from tests.support.queues import workload

from torchyard.api.objects import Object
from torchyard.core.queue.visibility import estimate, places

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


def test_the_line_is_in_the_order_of_admission() -> None:
    found = places([workload("late", at=9), workload("urgent", at=9, priority=5), workload("early", at=1)], QUEUES)
    assert {one.item.key[1]: one.position for one in found} == {"urgent": 0, "early": 1, "late": 2}
    assert {one.cluster_queue for one in found} == {"team"}


def test_the_start_is_estimated_from_those_before() -> None:
    past = [ran(f"p{index}", 0, 100) for index in range(3)]
    found = places([*past, ran("now", 200, None), workload("next", at=210), workload("then", at=211)], QUEUES)
    by_name = {one.item.key[1]: one for one in found}
    now = by_name["now"].item.reserved_at + 40
    first, second = (estimate(by_name[name], found, now) for name in ("next", "then"))
    assert first is not None
    assert second is not None
    assert (first.after, second.after) == (60.0, 160.0)
    assert first.error == 0


def test_the_error_grows_with_what_is_not_known() -> None:
    past = [ran(f"p{index}", 0, end) for index, end in enumerate((50, 100, 150))]
    found = places([*past, ran("now", 200, None), *(workload(f"w{i}", at=210 + i) for i in range(9))], QUEUES)
    waiting = [one for one in found if one.position is not None]
    errors = [guess.error for one in waiting if (guess := estimate(one, found, 0.0)) is not None]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_nothing_is_estimated_from_nothing() -> None:
    found = places([workload("a")], QUEUES)
    assert estimate(found[0], found, 0.0) is None
