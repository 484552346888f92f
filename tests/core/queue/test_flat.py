"""What a round looks at, in a cohort of many queues: what may have changed, and that once for all who ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.queues import World, flavor, local, queue, workload

from torchyard.core.queue.scheduler import Preempt
from torchyard.core.queue.state import Book
from torchyard.core.queue.workload_info import Item

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


def waiting_at(door: str) -> World:
    """A queue that has no quota, five that wait in it at the door `q`, and one that asks for another."""
    world = World(flavor(), queue(cpu=0), local(), *(workload(f"w{number}") for number in range(5)))
    world.put(workload("other", queue=door))
    world.settle()
    return world


def looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those whose place is asked for from now on."""
    asked: list[str] = []
    why_outside = Book.why_outside

    def ask(book: Book, item: Item) -> Any:
        asked.append(item.key[1])
        return why_outside(book, item)

    monkeypatch.setattr(Book, "why_outside", ask)
    return asked


def test_a_new_door_has_only_those_looked_at_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = waiting_at("new")
    asked = looked_at(world, monkeypatch)
    world.put(local("new"))
    world.settle()
    assert asked == ["other"]
    assert not world.book.outside
    world.book.drop("LocalQueue", ("default", "new"))
    world.settle()
    assert asked == ["other", "other"]
    assert list(world.book.outside) == [("default", "other")]


def test_who_asks_for_a_door_that_is_not_there_is_told_of_one_that_came() -> None:
    world = waiting_at("missing")
    assert "new" not in world.book.outside["default", "other"][1]
    world.put(local("new"))
    assert "new" in world.book.outside["default", "other"][1]


def test_a_namespace_has_only_its_own_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = waiting_at("q")
    asked = looked_at(world, monkeypatch)
    world.book.namespace_changed("elsewhere")
    world.settle()
    assert asked == []
    world.book.namespace_changed("default")
    assert sorted(asked) == ["other", "w0", "w1", "w2", "w3", "w4"]
