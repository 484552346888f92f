"""Preemptors that wait for the quota of the workloads they preempt: as in Kueue, their queue does not pass them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, admitted_names, flavor, local, preempted_names, queue, workload

from torchyard.api.queue import messages
from torchyard.core.queue.decisions import SchedulingDecision, StayPending

LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def run_cycles(sim: QueueSimulation) -> list[SchedulingDecision]:
    """Run cycles until nothing is active; no quota is released."""
    decisions = sim.run_cycle()
    while sim.state.pending.active:
        decisions += sim.run_cycle()
    return decisions


def simulate_preemption(**spec: Any) -> QueueSimulation:
    """Two workloads use the four cpus of a queue, a third is pending, and `large` preempts for all of them."""
    sim = QueueSimulation(flavor(), queue(cpu=4, preemption=LOWER, **spec), local())
    sim.put(workload("a", cpu=2, at=1), workload("b", cpu=2, at=2))
    assert admitted_names(run_cycles(sim)) == ["a", "b"]
    sim.put(workload("next", cpu=2, at=3), workload("large", cpu=4, priority=9, at=4))
    assert sorted(preempted_names(run_cycles(sim))) == ["a", "b"]
    return sim


def test_quota_released_in_parts_stays_reserved_for_the_preemptor() -> None:
    sim = simulate_preemption()
    sim.release("b")
    assert admitted_names(run_cycles(sim)) == []
    sim.release("a")
    assert admitted_names(run_cycles(sim)) == ["large"]


def test_preemptor_reports_the_pending_preemption() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=4, preemption=LOWER), local(), workload("a", cpu=3))
    run_cycles(sim)
    sim.put(workload("large", cpu=4, priority=9))
    reasons = [decision.why for decision in run_cycles(sim) if isinstance(decision, StayPending)]
    shortage = (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 3 more needed"
    )
    assert reasons == [
        (messages.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, f"{shortage}. Pending the preemption of 1 workload(s)")
    ]


def test_new_workload_does_not_pass_the_preemptor() -> None:
    sim = simulate_preemption()
    sim.put(workload("small", cpu=1, at=5))
    sim.release("b")
    assert admitted_names(run_cycles(sim)) == []


def test_deleted_preemptor_frees_its_quota_for_others() -> None:
    sim = simulate_preemption()
    sim.release("b")
    run_cycles(sim)
    sim.finish("large")
    assert admitted_names(run_cycles(sim)) == ["b"]


@pytest.mark.parametrize(("strategy", "first"), [("BestEffortFIFO", "large"), ("StrictFIFO", "urgent")])
def test_higher_priority_workload_passes_the_preemptor_of_a_strict_queue_only(strategy: str, first: str) -> None:
    sim = simulate_preemption(queueingStrategy=strategy)
    sim.put(workload("urgent", cpu=2, priority=10, at=6))
    sim.release("b")
    run_cycles(sim)
    sim.release("a")
    assert admitted_names(run_cycles(sim))[:1] == ([first] if first == "large" else [])
    assert first in sim.reserving()


def test_target_whose_eviction_was_not_written_is_preempted_again() -> None:
    sim = simulate_preemption()
    sim.release("b")
    sim.state.put_workload(sim.objects["a"], force=True)
    assert preempted_names(run_cycles(sim)) == ["a"]


def test_cohort_does_not_borrow_the_quota_of_a_preemptor() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    sim = QueueSimulation(flavor(), queue("mine", cpu=4, **shared), queue("theirs", cpu=1, **shared))
    sim.put(local("mine", "mine"), local("theirs", "theirs"))
    sim.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=2, queue="mine"))
    sim.put(workload("c", cpu=1, queue="theirs"))
    run_cycles(sim)
    sim.put(workload("large", cpu=4, priority=9, queue="mine"), workload("borrower", cpu=1, queue="theirs"))
    assert sorted(preempted_names(run_cycles(sim))) == ["a", "b"]
    sim.release("b")
    assert admitted_names(run_cycles(sim)) == []
    sim.release("a")
    assert admitted_names(run_cycles(sim)) == ["large"]


def test_cohort_uses_the_quota_that_a_preemptor_does_not_need() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    sim = QueueSimulation(flavor(), queue("mine", cpu=4, borrowingLimit=0, **shared), queue("theirs", cpu=2, **shared))
    sim.put(local("mine", "mine"), local("theirs", "theirs"))
    sim.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=2, queue="mine"))
    run_cycles(sim)
    sim.put(workload("large", cpu=4, priority=9, queue="mine"))
    assert sorted(preempted_names(run_cycles(sim))) == ["a", "b"]
    sim.put(workload("c", cpu=2, queue="theirs"))
    assert admitted_names(run_cycles(sim)) == ["c"]


def test_quota_that_preemption_will_leave_is_not_used_before_it_is_free() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    sim = QueueSimulation(
        flavor(), *(queue(name, cpu=cpu, **shared) for name, cpu in (("mine", 4), ("b", 1), ("c", 0)))
    )
    sim.put(*(local(name, name) for name in ("mine", "b", "c")), workload("a", cpu=4, queue="mine"))
    run_cycles(sim)
    sim.put(workload("first", cpu=2, priority=9, queue="mine"))
    sim.put(workload("own", cpu=1, queue="b"), workload("borrower", cpu=1, queue="c"))
    decisions = run_cycles(sim)
    assert (preempted_names(decisions), admitted_names(decisions)) == (["a"], ["own"])
    sim.release("a")
    assert sorted(admitted_names(run_cycles(sim))) == ["borrower", "first"]


def simulate_overlapping_targets() -> tuple[QueueSimulation, list[SchedulingDecision]]:
    """A borrower of four cpus, and the owners of two cpus each, who both need to preempt it."""
    shared: Any = {"cohort": "all", "preemption": LOWER}
    sim = QueueSimulation(flavor(), *(queue(name, cpu=cpu, **shared) for name, cpu in (("a", 2), ("b", 2), ("c", 1))))
    sim.put(*(local(name, name) for name in "abc"), workload("borrower", cpu=4, queue="c"))
    run_cycles(sim)
    sim.put(workload("first", cpu=2, queue="a", at=1), workload("second", cpu=2, queue="b", at=2))
    sim.put(workload("small", cpu=1, queue="b", at=3))
    return sim, run_cycles(sim)


def test_preemptor_with_overlapping_targets_is_not_passed_by_its_queue() -> None:
    sim, decisions = simulate_overlapping_targets()
    assert preempted_names(decisions) == ["borrower"]
    assert admitted_names(decisions) == [], "one cpu is free that `small` could use"
    *_, last = (decision for decision in decisions if isinstance(decision, StayPending))
    assert last.info.key[1] == "second"
    assert last.why == (
        messages.REASON_WAITING_FOR_QUOTA,
        "Workload has overlapping preemption targets with another workload",
    )
    sim.release("borrower")
    assert admitted_names(run_cycles(sim)) == ["first", "second", "small"]


def test_preemptor_with_overlapping_targets_waits_without_being_rescheduled() -> None:
    sim, _ = simulate_overlapping_targets()
    assert not sim.state.pending.active
    assert run_cycles(sim) == []


def test_second_preemptor_continues_when_the_first_is_deleted() -> None:
    sim, _ = simulate_overlapping_targets()
    sim.finish("first")
    decisions = run_cycles(sim)
    assert [
        (decision.info.key[1], decision.why.reason) for decision in decisions if isinstance(decision, StayPending)
    ] == [("second", messages.REASON_WAITING_FOR_PREEMPTED_WORKLOADS)]
    sim.release("borrower")
    assert admitted_names(run_cycles(sim)) == ["second", "small"]


def test_head_that_fits_without_promises_is_not_passed_by_its_queue() -> None:
    sim = QueueSimulation(
        flavor(), queue("mine", cpu=6, cohort="all", preemption=LOWER), queue("theirs", cpu=0, cohort="all")
    )
    sim.put(local("mine", "mine"), local("theirs", "theirs"))
    sim.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=1, queue="mine"))
    run_cycles(sim)
    sim.put(workload("large", cpu=4, priority=9, queue="mine"))
    assert preempted_names(run_cycles(sim)) == ["a"]
    sim.put(workload("medium", cpu=2, queue="theirs", at=1), workload("small", cpu=1, queue="theirs", at=2))
    assert admitted_names(run_cycles(sim)) == [], "one cpu will be left that `small` could use"
    sim.release("a")
    assert admitted_names(run_cycles(sim)) == ["large", "small"]


@pytest.mark.parametrize("priorities", [(100, 10), (5, 5)], ids=["different priorities", "equal priority"])
@pytest.mark.parametrize("size", [2, 3])
def test_several_preemptors_of_a_cohort_in_one_cycle_all_get_quota(priorities: tuple[int, int], size: int) -> None:
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    sim = QueueSimulation(flavor())
    for name in ("a", "b", "c"):
        sim.put(queue(name, cpu=2, cohort="all", preemption=policy), local(name, name))
    sim.put(*(workload(f"low{number}", queue="c", cpu=size, priority=-1, at=number) for number in range(6 // size)))
    assert len(sim.run_until_idle()) == 6 // size
    for name, priority in zip(("a", "b"), priorities, strict=True):
        sim.put(workload(f"{name}1", queue=name, cpu=2, priority=priority, at=10))
    assert sorted(sim.run_until_idle())[:2] == ["a1", "b1"]
    assert {"a1", "b1"} <= sim.reserving()
    assert len(sim.reserving() - {"a1", "b1"}) == (1 if size == 2 else 0)
