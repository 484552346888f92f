"""The first of a strict queue waits for its own quota, which others borrowed: as in Kueue, nobody borrows it anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import World, flavor, local, queue, workload

from torchyard.api.queue import messages
from torchyard.core.queue.scheduler import Wait

STRICT: Any = {"queueingStrategy": "StrictFIFO", "cohort": "all"}


def lent(owner: dict[str, Any]) -> World:
    """An owner of four cpus, all lent to two borrowers, and its first workload, which needs all four."""
    world = World(flavor(), queue("mine", cpu=4, **owner), queue("theirs", cpu=1, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"))
    world.put(*(workload(name, cpu=2, queue="theirs") for name in ("a", "b")))
    assert sorted(world.settle()) == ["a", "b"]
    world.put(workload("whole", cpu=4, queue="mine", at=5))
    assert world.settle() == []
    return world


def test_what_borrowers_give_back_is_not_borrowed_again() -> None:
    world = lent(STRICT)
    for name, next_one in (("a", "c"), ("b", "d")):
        world.put(workload(next_one, cpu=2, queue="theirs", priority=9))
        world.finish(name)
        world.settle()
    assert world.holding() == {"whole"}


POLICIES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "whoever lets others pass keeps nothing for its first": ({"cohort": "all"}, {"c", "b"}),
    "who may reclaim from anybody lets others borrow": (
        {**STRICT, "preemption": {"reclaimWithinCohort": "Any"}},
        {"whole"},
    ),
    "who may reclaim from the less important only does not": (
        {**STRICT, "preemption": {"reclaimWithinCohort": "LowerPriority"}},
        {"b"},
    ),
}


@pytest.mark.parametrize(("owner", "holders"), POLICIES.values(), ids=POLICIES)
def test_who_keeps_its_own_for_its_first(owner: dict[str, Any], holders: set[str]) -> None:
    world = World(flavor(), queue("mine", cpu=4, **owner), queue("theirs", cpu=1, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"))
    world.put(*(workload(name, cpu=2, queue="theirs") for name in ("a", "b")))
    world.settle()
    world.put(workload("whole", cpu=4, queue="mine", at=5), workload("c", cpu=2, queue="theirs", at=6))
    world.finish("a")
    world.settle()
    assert world.holding() == holders


def test_who_may_not_borrow_it_is_told_whose_it_is_and_smaller_ones_pass() -> None:
    world = lent(STRICT)
    world.put(workload("large", cpu=2, queue="theirs", at=6), workload("small", cpu=1, queue="theirs", at=7))
    world.finish("a")
    said = {one.item.key[1]: (one.reason, one.message) for one in world.round() if isinstance(one, Wait)}
    kept = "what is left to borrow is kept for the first in line of ClusterQueue mine, whose own quota it is"
    assert said["large"] == (messages.WAITING, kept)
    assert world.settle() == []
    world.finish("b")
    assert sorted(world.settle()) == ["small", "whole"]


def test_each_gets_what_is_its_own() -> None:
    world = lent(STRICT)
    world.put(queue("third", cpu=2, cohort="all"), local("third", "third"), workload("own", cpu=2, queue="third"))
    assert world.settle() == ["own"]


def test_when_the_first_goes_away_others_borrow_again() -> None:
    world = lent(STRICT)
    world.put(workload("c", cpu=2, queue="theirs", at=6))
    world.finish("a")
    assert world.settle() == []
    world.finish("whole")
    assert world.settle() == ["c"]


def test_a_stronger_one_that_passes_leaves_what_is_kept_for_the_next() -> None:
    world = lent(STRICT)
    world.put(workload("urgent", cpu=1, queue="mine", priority=9), workload("c", cpu=1, queue="theirs", at=6))
    world.finish("a")
    assert world.settle() == ["urgent"]
    world.finish("b")
    assert world.settle() == ["c"], "three of four are kept, the fourth is held; one is its own queue's"
    world.finish("urgent")
    assert world.settle() == ["whole"]


def test_more_than_its_own_is_kept_for_nobody() -> None:
    world = World(flavor(), queue("mine", cpu=2, **STRICT), queue("theirs", cpu=2, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"), workload("a", cpu=3, queue="theirs"))
    world.settle()
    world.put(workload("whole", cpu=4, queue="mine", at=5), workload("b", cpu=1, queue="theirs", at=6))
    assert world.settle() == ["b"]
