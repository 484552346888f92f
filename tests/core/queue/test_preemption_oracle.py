"""Of several full flavors, one with preemption candidates is chosen, as Kueue's preemption oracle does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, group, local, queue, quota, workload

TWO = group(("one", [quota("cpu", 2)]), ("two", [quota("cpu", 2)]))
LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize("policy", ["TryNextFlavor", "MayStopSearch"])
def test_flavor_without_preemption_candidates_is_skipped(policy: str) -> None:
    team = queue("team", TWO, preemption=LOWER, flavorFungibility={"whenCanPreempt": policy})
    sim = QueueSimulation(flavor("one"), flavor("two"), team, local())
    sim.put(workload("strong", cpu=2, priority=9))
    assert sim.run_and_log() == ["strong admitted"]
    sim.put(workload("weak", cpu=2))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("middle", cpu=2, priority=5))
    assert sim.run_and_log() == ["weak preempted", "middle admitted"]


@pytest.mark.parametrize(
    ("policy", "preempted"),
    [("TryNextFlavor", "borrower"), ("MayStopSearch", "weak")],
    ids=["try all flavors", "stop at the first"],
)
def test_reclaim_is_preferred_to_preemption_in_the_own_queue(policy: str, preempted: str) -> None:
    preemption: Any = {**LOWER, "reclaimWithinCohort": "Any"}
    mine = queue("mine", TWO, cohort="all", preemption=preemption, flavorFungibility={"whenCanPreempt": policy})
    empty = group(("one", [quota("cpu", 0)]), ("two", [quota("cpu", 0)]))
    sim = QueueSimulation(flavor("one"), flavor("two"), mine, queue("theirs", empty, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("weak", cpu=2, queue="mine"))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("borrower", cpu=2, queue="theirs"))
    assert sim.run_and_log() == ["borrower admitted"]
    sim.put(workload("strong", cpu=2, queue="mine", priority=9))
    assert sim.run_and_log()[:2] == [f"{preempted} preempted", "strong admitted"]


def test_preemptor_that_will_not_borrow_goes_before_borrowers() -> None:
    sim = QueueSimulation(
        flavor(), queue("mine", cpu=3, cohort="all", preemption=LOWER), queue("theirs", cpu=0, cohort="all")
    )
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("low", cpu=2, queue="mine"))
    assert sim.run_and_log() == ["low admitted"]
    sim.put(workload("high", cpu=3, queue="mine", priority=1), workload("borrower", cpu=1, queue="theirs", priority=9))
    assert sim.run_and_log() == ["low preempted", "high admitted"]
