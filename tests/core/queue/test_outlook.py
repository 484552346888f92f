"""Between flavors that are full, the one whose holders can be made to go is chosen, as Kueue's oracle has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import World, flavor, group, local, queue, quota, workload

TWO = group(("one", [quota("cpu", 2)]), ("two", [quota("cpu", 2)]))
LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize("stops", ["TryNextFlavor", "MayStopSearch"])
def test_a_flavor_whose_holders_stay_is_passed_over(stops: str) -> None:
    team = queue("team", TWO, preemption=LOWER, flavorFungibility={"whenCanPreempt": stops})
    world = World(flavor("one"), flavor("two"), team, local())
    world.put(workload("strong", cpu=2, priority=9))
    assert world.happens() == ["strong comes"]
    world.put(workload("weak", cpu=2))
    assert world.happens() == ["weak comes"]
    world.put(workload("middle", cpu=2, priority=5))
    assert world.happens() == ["weak goes", "middle comes"]


@pytest.mark.parametrize(
    ("stops", "goes"), [("TryNextFlavor", "borrower"), ("MayStopSearch", "weak")], ids=["all tried", "the first taken"]
)
def test_what_others_borrow_goes_before_what_is_ones_own(stops: str, goes: str) -> None:
    policy: Any = {**LOWER, "reclaimWithinCohort": "Any"}
    mine = queue("mine", TWO, cohort="all", preemption=policy, flavorFungibility={"whenCanPreempt": stops})
    empty = group(("one", [quota("cpu", 0)]), ("two", [quota("cpu", 0)]))
    world = World(flavor("one"), flavor("two"), mine, queue("theirs", empty, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"), workload("weak", cpu=2, queue="mine"))
    assert world.happens() == ["weak comes"]
    world.put(workload("borrower", cpu=2, queue="theirs"))
    assert world.happens() == ["borrower comes"]
    world.put(workload("strong", cpu=2, queue="mine", priority=9))
    assert world.happens()[:2] == [f"{goes} goes", "strong comes"]


def test_who_borrows_nothing_once_its_targets_are_gone_goes_before_borrowers() -> None:
    world = World(flavor(), queue("mine", cpu=3, cohort="all", preemption=LOWER), queue("theirs", cpu=0, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"), workload("low", cpu=2, queue="mine"))
    assert world.happens() == ["low comes"]
    world.put(
        workload("high", cpu=3, queue="mine", priority=1), workload("borrower", cpu=1, queue="theirs", priority=9)
    )
    assert world.happens() == ["low goes", "high comes"]
