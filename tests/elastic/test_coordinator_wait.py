"""What a worker does while no coordinator answers."""

from __future__ import annotations

import pytest

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.coordinator_wait import JOIN_WITHIN, CoordinatorWait

REFUSED = ConnectionRefusedError("Connection refused")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def create(clock: Clock) -> tuple[CoordinatorWait, list[str]]:
    lines: list[str] = []
    return CoordinatorWait(("first", 29400), clock=clock, write_line=lines.append), lines


def wait(wait: CoordinatorWait, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        wait.failed(REFUSED)
        clock.now += 1


def test_a_worker_without_a_coordinator_prints_what_it_waits_for() -> None:
    clock = Clock()
    waiting, lines = create(clock)
    wait(waiting, clock, 10)
    assert lines == []
    wait(waiting, clock, 120)
    assert lines == [
        f"waiting for the coordinator: address=first:29400 seconds={seconds} error=Connection refused"
        for seconds in (10, 70)
    ]


def test_a_worker_that_never_reached_its_coordinator_gives_up() -> None:
    """It may have come after the end of the job, and would keep its GPU for ever."""
    clock = Clock()
    waiting, _ = create(clock)
    wait(waiting, clock, int(JOIN_WITHIN))
    with pytest.raises(ElasticError, match="no coordinator has answered at first:29400 for 600 s") as caught:
        waiting.failed(REFUSED)
    assert caught.value.code == "NoCoordinator"


def test_a_worker_that_has_taken_part_waits_for_ever() -> None:
    clock = Clock()
    waiting, lines = create(clock)
    wait(waiting, clock, 500)
    waiting.answered()
    lines.clear()
    wait(waiting, clock, 9)
    assert lines == [], "the wait began anew"
    wait(waiting, clock, 10 * int(JOIN_WITHIN))
    assert len(lines) == 100
