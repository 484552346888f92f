"""Preemption comes to an end: whoever preempts gets what it preempted for, and is not preempted for it in turn."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
from tests.support.queues import (
    QueueSimulation,
    flavor,
    group,
    local,
    pod_set,
    queue,
    quota,
    workload,
)

from torchyard.api.objects import Object
from torchyard.core.queue.flavor_assigner import FlavorAssignmentMode

QUEUES = ("qa", "qb", "qc")
WORLDS_OF_EACH = 15


def of_two_flavors(name: str, one: int, two: int, preemption: Object | None = None, **limits: int) -> list[Object]:
    """A queue of the cohort and the door to it."""
    quotas = [(kind, [quota("cpu", nominal, **limits)]) for kind, nominal in (("one", one), ("two", two))]
    return [queue(name, group(*quotas), cohort="all", preemption=preemption or {}), local(name, name)]


def test_preemptor_gets_the_flavors_that_were_freed_for_it() -> None:
    """Its first pod set would rather have the flavor that is freed for the second."""
    quotas = (("one", [quota("cpu", 2)]), ("two", [quota("cpu", 1)]))
    team = queue("team", group(*quotas), preemption={"withinClusterQueue": "LowerPriority"})
    sim = QueueSimulation(flavor("one"), flavor("two"), team, local())
    sim.put(workload("low", cpu=2))
    assert sim.run_and_log() == ["low admitted"]
    sim.put(workload("high", pod_set("first", cpu=1), pod_set("second", cpu=2), priority=9))
    assert sim.run_and_log() == ["low preempted", "high admitted"]
    held = sim.state.cache.workloads["default", "high"].usage
    assert held == {("two", "cpu"): 1000, ("one", "cpu"): 2000}


def test_freed_quota_is_not_for_older_workloads_of_the_cohort() -> None:
    """Who waits longer in another queue may borrow before it, but not what it preempted for."""
    shared: Any = {"cohort": "all", "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}}
    borrows: Any = {**shared["preemption"], "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(
        flavor(), queue("mine", cpu=2, cohort="all", preemption=borrows), queue("theirs", cpu=2, **shared)
    )
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("weak", cpu=2, queue="mine", at=3))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("older", cpu=3, queue="theirs", priority=3, at=1))
    assert sim.run_and_log() == []
    sim.put(workload("strong", cpu=3, queue="mine", priority=3, at=2))
    assert sim.run_and_log() == ["weak preempted", "strong admitted"]


def test_no_preemption_for_quota_admitted_in_the_same_cycle() -> None:
    borrows: Any = {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(
        flavor(), queue("mine", cpu=2, cohort="all", preemption=borrows), queue("theirs", cpu=2, cohort="all")
    )
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("low", cpu=2, queue="mine"))
    assert sim.run_and_log() == ["low admitted"]
    sim.put(workload("large", cpu=4, queue="mine", priority=9), workload("own", cpu=2, queue="theirs"))
    assert sim.run_and_log() == ["own admitted"]


def test_reclaim_takes_only_the_assigned_flavor() -> None:
    """A flavor that was tried in vain is no reason to take from those who borrow that."""
    reclaims = {"reclaimWithinCohort": "Any"}
    sim = QueueSimulation(flavor("one"), flavor("two"))
    sim.put(*of_two_flavors("qa", 2, 0), *of_two_flavors("qb", 2, 2, reclaims), *of_two_flavors("qc", 0, 0))
    sim.put(workload("at-home", cpu=2, queue="qa"), workload("of-one", cpu=2, queue="qc", priority=5))
    assert sorted(sim.run_and_log()) == ["at-home admitted", "of-one admitted"]
    sim.put(workload("of-two", cpu=2, queue="qa"))
    assert sim.run_and_log() == ["of-two admitted"]
    sim.put(workload("owner", cpu=2, queue="qb"))
    assert sim.run_and_log() == ["of-one preempted", "owner admitted"]


def test_reclaim_spares_workloads_that_use_another_resource() -> None:
    reclaims = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(flavor("one"), flavor("two"))
    sim.put(*of_two_flavors("qa", 3, 1, reclaims), *of_two_flavors("qb", 0, 2))
    sim.put(workload("borrowed", cpu=3, queue="qb"))
    assert sim.run_and_log() == ["borrowed admitted"]
    sim.put(workload("at-home", cpu=2, queue="qb"))
    assert sim.run_and_log() == ["at-home admitted"]
    sim.put(workload("wants-both", pod_set("first", cpu=3), pod_set("second", cpu=2), queue="qa", priority=9))
    assert sim.run_and_log() == []


def test_reclaimed_workload_does_not_preempt_to_borrow_again() -> None:
    """Else it goes on for ever: it preempts a weaker one, loses to a stronger one, and the weaker reclaims its own."""
    every = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    within: Any = {**every, "withinClusterQueue": "LowerPriority"}
    sim = QueueSimulation(flavor(), queue("mine", cpu=3, cohort="all", preemption=within))
    sim.put(queue("theirs", cpu=3, cohort="all", preemption=every), local("mine", "mine"), local("theirs", "theirs"))
    sim.put(workload("weak", cpu=3, queue="mine"))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("middle", cpu=4, queue="mine", priority=2), workload("strong", cpu=5, queue="theirs", priority=3))
    said = sim.run_and_log()
    assert said == [
        "weak preempted",
        "middle admitted",
        "middle preempted",
        "strong admitted",
        "strong preempted",
        "weak admitted",
    ]


def test_reclaimed_workload_does_not_preempt_the_owner_to_borrow_again() -> None:
    owner = {"reclaimWithinCohort": "Any"}
    borrower: Any = {**owner, "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(flavor(), queue("mine", cpu=2, cohort="all", preemption=borrower))
    sim.put(queue("theirs", cpu=4, cohort="all", preemption=owner), local("mine", "mine"), local("theirs", "theirs"))
    for name, cpu, priority in (("own", 2, 2), ("more", 3, 1), ("less", 1, 0)):
        sim.put(workload(name, cpu=cpu, priority=priority, queue="theirs"))
    assert sim.run_and_log() == ["own admitted", "more admitted", "less admitted"]
    sim.put(workload("strong", cpu=4, queue="mine", priority=9))
    taken, given_back = (
        ["less preempted", "more preempted", "strong admitted"],
        ["strong preempted", "less admitted", "more admitted"],
    )
    assert sim.run_and_log() == [*taken, *given_back]


def some_configuration(random: Random, *, strict: bool) -> list[Object]:
    """`strict`: some queues keep to the order, and some may not reclaim at all."""
    made: list[Object] = [flavor("one"), flavor("two")]
    for name in QUEUES:
        in_cohort = random.random() < 0.6
        quotas = []
        for kind in ("one", "two"):
            nominal, limits = random.randint(0, 6), {}
            if in_cohort and random.random() < 0.5:
                limits["borrowingLimit"] = random.randint(0, 4)
            if in_cohort and random.random() < 0.5:
                limits["lendingLimit"] = random.randint(0, nominal)
            quotas.append((kind, [quota("cpu", nominal, **limits)]))
        policy: Any = {
            "withinClusterQueue": random.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": random.choice(
                ["Never", "LowerPriority", "Any"] if strict else ["LowerPriority", "Any"]
            ),
            "borrowWithinCohort": {"policy": random.choice(["Never", "LowerPriority"])},
        }
        order = random.choice(["StrictFIFO", "BestEffortFIFO"]) if strict else "BestEffortFIFO"
        spec: Any = {"cohort": "all" if in_cohort else "", "preemption": policy, "queueingStrategy": order}
        made.append(queue(name, group(*quotas), **spec))
        made.append(local(name, name))
    return made


def some_job(random: Random, number: int) -> Object:
    sets = [
        pod_set(f"p{index}", count=random.randint(1, 3), cpu=random.choice(["500m", "1", "2"]))
        for index in range(random.randint(1, 3))
    ]
    place: Any = {"queue": random.choice(QUEUES), "priority": random.randint(0, 3), "at": random.randint(0, 30)}
    return workload(f"w{number}", *sets, **place)


def at_once() -> bool:
    return True


def now_and_then(random: Random) -> bool:
    return random.random() < 0.5


@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
@pytest.mark.parametrize("first", range(0, 150, WORLDS_OF_EACH))
def test_random_quotas_terminate_and_admit_every_workload_that_can_fit(first: int, strict: bool) -> None:
    """Worlds with several pod sets and flavors: drawn, but the same ones every time."""
    for number in range(first, first + WORLDS_OF_EACH):
        random = Random(number)
        sim, late = QueueSimulation(*some_configuration(random, strict=strict)), dict[str, None]()
        for job in range(random.randint(1, 12)):
            sim.put(some_job(random, job))
            sim.run_with_late_release(late, partial(now_and_then, random), max_cycles=400)
        sim.run_with_late_release(late, at_once, max_cycles=400)
        while sim.reserving():
            sim.finish(min(sim.reserving()))
            sim.run_with_late_release(late, at_once, max_cycles=400)
        for cq in sim.state.cache.cluster_queues.values():
            left = sorted(cq.pending.values(), key=lambda one: one.order)
            for info in left[:1] if cq.spec.is_strict_fifo else left:
                assert cq.assigner_for(info.requirements).assign(cq.node).mode is FlavorAssignmentMode.NO_FIT, (
                    f"sim {number}"
                )
