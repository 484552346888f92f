"""What a cycle looks at in a cohort of many queues: only what may have changed, and that once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue.advice import with_advice
from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.decisions import Preempt
from torchyard.core.queue.workload_info import WorkloadInfo

RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
QUEUES = 8


class CountingDict(dict[Any, WorkloadInfo]):
    """The reserving workloads of a queue; counts how often they are iterated."""

    iterations = 0

    def values(self) -> Any:
        self.iterations += 1
        return super().values()


def cohort() -> QueueSimulation:
    """Queues with two cpus each. The first has twenty more that the others may borrow."""
    sim = QueueSimulation(flavor(), queue("q0", cpu=22, cohort="all", preemption=RECLAIM), local("q0", "q0"))
    for number in range(1, QUEUES):
        name = f"q{number}"
        sim.put(queue(name, cpu=2, cohort="all", preemption=RECLAIM), local(name, name))
    return sim


def count_iterations(sim: QueueSimulation) -> Iterator[CountingDict]:
    for cq in sim.state.cache.cluster_queues.values():
        cq.reserving = CountingDict(cq.reserving)
        yield cq.reserving


def test_reserving_workloads_are_not_scanned_where_nothing_is_borrowed() -> None:
    sim = cohort()
    for number in range(QUEUES):
        sim.put(workload(f"old-{number}", queue=f"q{number}", cpu=22 if number == 0 else 1))
    sim.run_until_idle()
    _, *others = count_iterations(sim)
    sim.put(workload("new", queue="q0", cpu=22, at=1))
    sim.run_until_idle()
    assert sim.reserving() == {f"old-{number}" for number in range(QUEUES)}
    assert [other.iterations for other in others] == [0] * (QUEUES - 1)


def test_borrowers_are_scanned_once_per_cycle_for_all_reclaiming_queues() -> None:
    sim = cohort()
    for number in range(11 + QUEUES):
        sim.put(workload(f"lent-{number}", queue="q1", cpu=2))
    assert len(sim.run_until_idle()) == 11 + QUEUES - 1, "the last one does not fit"
    _, borrowing, *_ = count_iterations(sim)
    for number in range(2, QUEUES):
        sim.put(workload(f"new-{number}", queue=f"q{number}", cpu=2, at=1))
    decisions = sim.run_cycle()
    assert any(isinstance(decision, Preempt) for decision in decisions)
    assert borrowing.iterations == 1


def simulate_pending(local_queue: str) -> QueueSimulation:
    """A queue without quota: five pending workloads in LocalQueue `q`, and `other` in the given LocalQueue."""
    sim = QueueSimulation(flavor(), queue(cpu=0), local(), *(workload(f"w{number}") for number in range(5)))
    sim.put(workload("other", queue=local_queue))
    sim.run_until_idle()
    return sim


def record_evaluations(sim: QueueSimulation, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the workloads that are evaluated from now on."""
    evaluated: list[str] = []
    ineligible_reason = QueueCache.ineligible_reason

    def record(cache: QueueCache, info: WorkloadInfo) -> Any:
        evaluated.append(info.key[1])
        return ineligible_reason(cache, info)

    monkeypatch.setattr(QueueCache, "ineligible_reason", record)
    return evaluated


def test_new_local_queue_reevaluates_only_its_own_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = simulate_pending("new")
    evaluated = record_evaluations(sim, monkeypatch)
    sim.put(local("new"))
    sim.run_until_idle()
    assert evaluated == ["other"]
    assert not sim.state.pending.ineligible
    sim.state.delete_local_queue(("default", "new"))
    sim.run_until_idle()
    assert evaluated == ["other", "other"]
    assert list(sim.state.pending.ineligible) == [("default", "other")]


def test_advice_for_a_missing_local_queue_lists_a_new_one() -> None:
    sim = simulate_pending("missing")
    key = ("default", "other")
    sim.put(local("new"))
    assert with_advice(sim.state, sim.state.cache.workloads[key], sim.state.pending.ineligible[key]).endswith(
        "LocalQueues in this namespace: new, q"
    )


def test_changed_namespace_reevaluates_only_its_own_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = simulate_pending("q")
    evaluated = record_evaluations(sim, monkeypatch)
    sim.state.namespace_changed("elsewhere")
    sim.run_until_idle()
    assert evaluated == []
    sim.state.namespace_changed("default")
    assert sorted(evaluated) == ["other", "w0", "w1", "w2", "w3", "w4"]
