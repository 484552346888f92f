"""Between flavors that are full, the one whose holders can be made to go is chosen, as Kueue's oracle has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import World, flavor, group, local, queue, quota, workload

from torchyard.core.queue.cycle import Admit, Preempt

TWO = group(("one", [quota("cpu", 2)]), ("two", [quota("cpu", 2)]))
LOWER = {"withinClusterQueue": "LowerPriority"}


def after(world: World) -> list[str]:
    """What rounds come to in which whoever is preempted gives back at once."""
    said: list[str] = []
    while True:
        for one in world.round():
            if isinstance(one, Admit):
                said.append(f"{one.item.key[1]} comes")
            elif isinstance(one, Preempt):
                said += [f"{target.item.key[1]} goes" for target in one.targets]
                for target in one.targets:
                    world.give_back(target.item.key[1])
        if not world.book.awake:
            return said


@pytest.mark.parametrize("stops", ["TryNextFlavor", "MayStopSearch"])
def test_a_flavor_whose_holders_stay_is_passed_over(stops: str) -> None:
    team = queue("team", TWO, preemption=LOWER, flavorFungibility={"whenCanPreempt": stops})
    world = World(flavor("one"), flavor("two"), team, local())
    world.put(workload("strong", cpu=2, priority=9))
    assert after(world) == ["strong comes"]
    world.put(workload("weak", cpu=2))
    assert after(world) == ["weak comes"]
    world.put(workload("middle", cpu=2, priority=5))
    assert after(world) == ["weak goes", "middle comes"]


@pytest.mark.parametrize(
    ("stops", "goes"), [("TryNextFlavor", "borrower"), ("MayStopSearch", "weak")], ids=["all tried", "the first taken"]
)
def test_what_others_borrow_goes_before_what_is_ones_own(stops: str, goes: str) -> None:
    policy: Any = {**LOWER, "reclaimWithinCohort": "Any"}
    mine = queue("mine", TWO, cohort="all", preemption=policy, flavorFungibility={"whenCanPreempt": stops})
    empty = group(("one", [quota("cpu", 0)]), ("two", [quota("cpu", 0)]))
    world = World(flavor("one"), flavor("two"), mine, queue("theirs", empty, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"), workload("weak", cpu=2, queue="mine"))
    assert after(world) == ["weak comes"]
    world.put(workload("borrower", cpu=2, queue="theirs"))
    assert after(world) == ["borrower comes"]
    world.put(workload("strong", cpu=2, queue="mine", priority=9))
    assert after(world)[:2] == [f"{goes} goes", "strong comes"]


def test_who_borrows_nothing_once_its_targets_are_gone_goes_before_borrowers() -> None:
    world = World(flavor(), queue("mine", cpu=3, cohort="all", preemption=LOWER), queue("theirs", cpu=0, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"), workload("low", cpu=2, queue="mine"))
    assert after(world) == ["low comes"]
    world.put(
        workload("high", cpu=3, queue="mine", priority=1), workload("borrower", cpu=1, queue="theirs", priority=9)
    )
    assert after(world) == ["low goes", "high comes"]
