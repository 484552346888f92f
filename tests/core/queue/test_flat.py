"""What a round looks at, in a cohort of many queues: what may have changed, and that once for all who ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.queues import World, flavor, local, queue, workload

from torchyard.core.queue.cycle import Preempt
from torchyard.core.queue.items import Item

RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
MANY = 8


class Asked(dict[Any, Item]):
    """Who holds quota of a queue, and how often somebody asked for all of them."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def cohort() -> World:
    """Queues with two cpus each, the first of which has twenty more that others may borrow."""
    world = World(flavor(), queue("q0", cpu=22, cohort="all", preemption=RECLAIM), local("q0", "q0"))
    for number in range(1, MANY):
        name = f"q{number}"
        world.put(queue(name, cpu=2, cohort="all", preemption=RECLAIM), local(name, name))
    return world


def count(world: World) -> Iterator[Asked]:
    for pool in world.book.pools.values():
        pool.holding = Asked(pool.holding)
        yield pool.holding


def test_where_nobody_borrows_nobody_is_asked_for_what_he_holds() -> None:
    world = cohort()
    for number in range(MANY):
        world.put(workload(f"old-{number}", queue=f"q{number}", cpu=22 if number == 0 else 1))
    world.settle()
    _, *others = count(world)
    world.put(workload("new", queue="q0", cpu=22, at=1))
    world.settle()
    assert world.holding() == {f"old-{number}" for number in range(MANY)}
    assert [one.times for one in others] == [0] * (MANY - 1)


def test_who_borrows_is_asked_once_in_a_round_however_many_want_their_own_back() -> None:
    world = cohort()
    for number in range(11 + MANY):
        world.put(workload(f"lent-{number}", queue="q1", cpu=2))
    assert len(world.settle()) == 11 + MANY - 1, "the rest is q1's own"
    _, lent, *_ = count(world)
    for number in range(2, MANY):
        world.put(workload(f"new-{number}", queue=f"q{number}", cpu=2, at=1))
    decisions = world.round()
    assert any(isinstance(one, Preempt) for one in decisions)
    assert lent.times == 1
