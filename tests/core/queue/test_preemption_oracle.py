"""Between flavors that are full, the one whose holders can be made to go is chosen, as Kueue's oracle has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, group, local, queue, quota, workload

TWO = group(("one", [quota("cpu", 2)]), ("two", [quota("cpu", 2)]))
LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize("stops", ["TryNextFlavor", "MayStopSearch"])
def test_flavor_without_preemption_candidates_is_skipped(stops: str) -> None:
    team = queue("team", TWO, preemption=LOWER, flavorFungibility={"whenCanPreempt": stops})
    sim = QueueSimulation(flavor("one"), flavor("two"), team, local())
    sim.put(workload("strong", cpu=2, priority=9))
    assert sim.run_and_log() == ["strong admitted"]
    sim.put(workload("weak", cpu=2))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("middle", cpu=2, priority=5))
    assert sim.run_and_log() == ["weak preempted", "middle admitted"]


@pytest.mark.parametrize(
    ("stops", "goes"), [("TryNextFlavor", "borrower"), ("MayStopSearch", "weak")], ids=["all tried", "the first taken"]
)
def test_reclaim_is_preferred_to_preemption_in_the_own_queue(stops: str, goes: str) -> None:
    policy: Any = {**LOWER, "reclaimWithinCohort": "Any"}
    mine = queue("mine", TWO, cohort="all", preemption=policy, flavorFungibility={"whenCanPreempt": stops})
    empty = group(("one", [quota("cpu", 0)]), ("two", [quota("cpu", 0)]))
    sim = QueueSimulation(flavor("one"), flavor("two"), mine, queue("theirs", empty, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("weak", cpu=2, queue="mine"))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("borrower", cpu=2, queue="theirs"))
    assert sim.run_and_log() == ["borrower admitted"]
    sim.put(workload("strong", cpu=2, queue="mine", priority=9))
    assert sim.run_and_log()[:2] == [f"{goes} preempted", "strong admitted"]


def test_preemptor_that_will_not_borrow_goes_before_borrowers() -> None:
    sim = QueueSimulation(
        flavor(), queue("mine", cpu=3, cohort="all", preemption=LOWER), queue("theirs", cpu=0, cohort="all")
    )
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("low", cpu=2, queue="mine"))
    assert sim.run_and_log() == ["low admitted"]
    sim.put(workload("high", cpu=3, queue="mine", priority=1), workload("borrower", cpu=1, queue="theirs", priority=9))
    assert sim.run_and_log() == ["low preempted", "high admitted"]
