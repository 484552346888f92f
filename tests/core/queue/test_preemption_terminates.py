"""Preemption terminates: a preemptor gets what it preempted for, and is not preempted for it in turn."""

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
CONFIGURATIONS_PER_TEST = 15
PREEMPTIONS_IN_TURN = 4  # Kueue does not stop; here a workload must not preempt to borrow after this many times


def queue_with_two_flavors(
    name: str, nominal_one: int, nominal_two: int, preemption: Object | None = None, **limits: int
) -> list[Object]:
    """A ClusterQueue of the cohort, and its LocalQueue."""
    quotas = [
        (flavor_name, [quota("cpu", nominal, **limits)])
        for flavor_name, nominal in (("one", nominal_one), ("two", nominal_two))
    ]
    return [queue(name, group(*quotas), cohort="all", preemption=preemption or {}), local(name, name)]


def test_preemptor_gets_the_flavors_that_were_freed_for_it() -> None:
    """Its first pod set would prefer the flavor that is freed for the second."""
    quotas = (("one", [quota("cpu", 2)]), ("two", [quota("cpu", 1)]))
    team = queue("team", group(*quotas), preemption={"withinClusterQueue": "LowerPriority"})
    sim = QueueSimulation(flavor("one"), flavor("two"), team, local())
    sim.put(workload("low", cpu=2))
    assert sim.run_and_log() == ["low admitted"]
    sim.put(workload("high", pod_set("first", cpu=1), pod_set("second", cpu=2), priority=9))
    assert sim.run_and_log() == ["low preempted", "high admitted"]
    usage = sim.state.cache.workloads["default", "high"].usage
    assert usage == {("two", "cpu"): 1000, ("one", "cpu"): 2000}


def test_freed_quota_is_not_for_older_workloads_of_the_cohort() -> None:
    """A workload queued longer in another queue may borrow before it, but not the quota it preempted for."""
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
    """A flavor that did not fit is no reason to preempt workloads that borrow it."""
    reclaims = {"reclaimWithinCohort": "Any"}
    sim = QueueSimulation(flavor("one"), flavor("two"))
    sim.put(
        *queue_with_two_flavors("qa", 2, 0),
        *queue_with_two_flavors("qb", 2, 2, reclaims),
        *queue_with_two_flavors("qc", 0, 0),
    )
    sim.put(workload("own", cpu=2, queue="qa"), workload("borrows-one", cpu=2, queue="qc", priority=5))
    assert sorted(sim.run_and_log()) == ["borrows-one admitted", "own admitted"]
    sim.put(workload("borrows-two", cpu=2, queue="qa"))
    assert sim.run_and_log() == ["borrows-two admitted"]
    sim.put(workload("owner", cpu=2, queue="qb"))
    assert sim.run_and_log() == ["borrows-one preempted", "owner admitted"]


def test_reclaim_spares_workloads_that_use_another_resource() -> None:
    reclaims = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(flavor("one"), flavor("two"))
    sim.put(*queue_with_two_flavors("qa", 3, 1, reclaims), *queue_with_two_flavors("qb", 0, 2))
    sim.put(workload("borrowed", cpu=3, queue="qb"))
    assert sim.run_and_log() == ["borrowed admitted"]
    sim.put(workload("own", cpu=2, queue="qb"))
    assert sim.run_and_log() == ["own admitted"]
    sim.put(workload("needs-both", pod_set("first", cpu=3), pod_set("second", cpu=2), queue="qa", priority=9))
    assert sim.run_and_log() == []


def test_reclaimed_workload_does_not_preempt_to_borrow_again() -> None:
    """Otherwise it repeats without end: it preempts, is preempted, and the owner reclaims its quota."""
    every = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    within: Any = {**every, "withinClusterQueue": "LowerPriority"}
    sim = QueueSimulation(flavor(), queue("mine", cpu=3, cohort="all", preemption=within))
    sim.put(queue("theirs", cpu=3, cohort="all", preemption=every), local("mine", "mine"), local("theirs", "theirs"))
    sim.put(workload("weak", cpu=3, queue="mine"))
    assert sim.run_and_log() == ["weak admitted"]
    sim.put(workload("middle", cpu=4, queue="mine", priority=2), workload("strong", cpu=5, queue="theirs", priority=3))
    log = sim.run_and_log()
    assert log.count("strong preempted") == PREEMPTIONS_IN_TURN
    assert log[-2:] == ["strong preempted", "weak admitted"]


def test_reclaimed_workload_does_not_preempt_the_owner_to_borrow_again() -> None:
    owner = {"reclaimWithinCohort": "Any"}
    borrower: Any = {**owner, "borrowWithinCohort": {"policy": "LowerPriority"}}
    sim = QueueSimulation(flavor(), queue("mine", cpu=2, cohort="all", preemption=borrower))
    sim.put(queue("theirs", cpu=4, cohort="all", preemption=owner), local("mine", "mine"), local("theirs", "theirs"))
    for name, cpu, priority in (("own", 2, 2), ("more", 3, 1), ("less", 1, 0)):
        sim.put(workload(name, cpu=cpu, priority=priority, queue="theirs"))
    assert sim.run_and_log() == ["own admitted", "more admitted", "less admitted"]
    sim.put(workload("strong", cpu=4, queue="mine", priority=9))
    preempts, reclaims = (
        ["less preempted", "more preempted", "strong admitted"],
        ["strong preempted", "less admitted", "more admitted"],
    )
    assert sim.run_and_log(max_cycles=100) == [*preempts, *reclaims] * PREEMPTIONS_IN_TURN


def random_configuration(random: Random, *, strict: bool) -> list[Object]:
    """`strict`: some queues are StrictFIFO, and some may not reclaim at all."""
    objects: list[Object] = [flavor("one"), flavor("two")]
    for name in QUEUES:
        in_cohort = random.random() < 0.6
        quotas = []
        for flavor_name in ("one", "two"):
            nominal, limits = random.randint(0, 6), {}
            if in_cohort and random.random() < 0.5:
                limits["borrowingLimit"] = random.randint(0, 4)
            if in_cohort and random.random() < 0.5:
                limits["lendingLimit"] = random.randint(0, nominal)
            quotas.append((flavor_name, [quota("cpu", nominal, **limits)]))
        policy: Any = {
            "withinClusterQueue": random.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": random.choice(
                ["Never", "LowerPriority", "Any"] if strict else ["LowerPriority", "Any"]
            ),
            "borrowWithinCohort": {"policy": random.choice(["Never", "LowerPriority"])},
        }
        order = random.choice(["StrictFIFO", "BestEffortFIFO"]) if strict else "BestEffortFIFO"
        spec: Any = {"cohort": "all" if in_cohort else "", "preemption": policy, "queueingStrategy": order}
        objects.append(queue(name, group(*quotas), **spec))
        objects.append(local(name, name))
    return objects


def random_workload(random: Random, number: int) -> Object:
    pod_sets = [
        pod_set(f"p{index}", count=random.randint(1, 3), cpu=random.choice(["500m", "1", "2"]))
        for index in range(random.randint(1, 3))
    ]
    fields: Any = {"queue": random.choice(QUEUES), "priority": random.randint(0, 3), "at": random.randint(0, 30)}
    return workload(f"w{number}", *pod_sets, **fields)


def always() -> bool:
    return True


def sometimes(random: Random) -> bool:
    return random.random() < 0.5


@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
@pytest.mark.parametrize("first", range(0, 150, CONFIGURATIONS_PER_TEST))
def test_random_quotas_terminate_and_admit_every_workload_that_can_fit(first: int, strict: bool) -> None:
    """Pseudo-random configurations with several pod sets and flavors, the same ones every time."""
    for number in range(first, first + CONFIGURATIONS_PER_TEST):
        random = Random(number)
        sim, late = QueueSimulation(*random_configuration(random, strict=strict)), dict[str, None]()
        for job in range(random.randint(1, 12)):
            sim.put(random_workload(random, job))
            sim.run_with_late_release(late, partial(sometimes, random), max_cycles=400)
        sim.run_with_late_release(late, always, max_cycles=400)
        while sim.reserving():
            sim.finish(min(sim.reserving()))
            sim.run_with_late_release(late, always, max_cycles=400)
        for cq in sim.state.cache.cluster_queues.values():
            pending = sorted(cq.pending.values(), key=lambda info: info.order)
            for info in pending[:1] if cq.spec.is_strict_fifo else pending:
                assert cq.assigner_for(info.requirements).assign(cq.node).mode is FlavorAssignmentMode.NO_FIT, (
                    f"sim {number}"
                )
