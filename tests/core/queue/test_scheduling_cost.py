"""What a round looks at, in a cohort of many queues: what may have changed, and that once for all who ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.scheduler import Preempt
from torchyard.core.queue.workload_info import WorkloadInfo

RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
MANY = 8


class Asked(dict[Any, WorkloadInfo]):
    """Who holds quota of a queue, and how often somebody asked for all of them."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def cohort() -> QueueSimulation:
    """Queues with two cpus each, the first of which has twenty more that others may borrow."""
    sim = QueueSimulation(flavor(), queue("q0", cpu=22, cohort="all", preemption=RECLAIM), local("q0", "q0"))
    for number in range(1, MANY):
        name = f"q{number}"
        sim.put(queue(name, cpu=2, cohort="all", preemption=RECLAIM), local(name, name))
    return sim


def count(sim: QueueSimulation) -> Iterator[Asked]:
    for cq in sim.state.cache.cluster_queues.values():
        cq.reserving = Asked(cq.reserving)
        yield cq.reserving


def test_reserving_workloads_are_not_scanned_where_nothing_is_borrowed() -> None:
    sim = cohort()
    for number in range(MANY):
        sim.put(workload(f"old-{number}", queue=f"q{number}", cpu=22 if number == 0 else 1))
    sim.run_until_idle()
    _, *others = count(sim)
    sim.put(workload("new", queue="q0", cpu=22, at=1))
    sim.run_until_idle()
    assert sim.reserving() == {f"old-{number}" for number in range(MANY)}
    assert [one.times for one in others] == [0] * (MANY - 1)


def test_borrowers_are_scanned_once_per_cycle_for_all_reclaiming_queues() -> None:
    sim = cohort()
    for number in range(11 + MANY):
        sim.put(workload(f"lent-{number}", queue="q1", cpu=2))
    assert len(sim.run_until_idle()) == 11 + MANY - 1, "the rest is q1's own"
    _, lent, *_ = count(sim)
    for number in range(2, MANY):
        sim.put(workload(f"new-{number}", queue=f"q{number}", cpu=2, at=1))
    decisions = sim.run_cycle()
    assert any(isinstance(one, Preempt) for one in decisions)
    assert lent.times == 1


def waiting_at(door: str) -> QueueSimulation:
    """A queue that has no quota, five that wait in it at the door `q`, and one that asks for another."""
    sim = QueueSimulation(flavor(), queue(cpu=0), local(), *(workload(f"w{number}") for number in range(5)))
    sim.put(workload("other", queue=door))
    sim.run_until_idle()
    return sim


def looked_at(sim: QueueSimulation, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those whose place is asked for from now on."""
    asked: list[str] = []
    ineligible_reason = QueueCache.ineligible_reason

    def ask(cache: QueueCache, info: WorkloadInfo) -> Any:
        asked.append(info.key[1])
        return ineligible_reason(cache, info)

    monkeypatch.setattr(QueueCache, "ineligible_reason", ask)
    return asked


def test_new_local_queue_reevaluates_only_its_own_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = waiting_at("new")
    asked = looked_at(sim, monkeypatch)
    sim.put(local("new"))
    sim.run_until_idle()
    assert asked == ["other"]
    assert not sim.state.pending.ineligible
    sim.state.delete_local_queue(("default", "new"))
    sim.run_until_idle()
    assert asked == ["other", "other"]
    assert list(sim.state.pending.ineligible) == [("default", "other")]


def test_message_for_a_missing_local_queue_lists_a_new_one() -> None:
    sim = waiting_at("missing")
    assert "new" not in sim.state.pending.ineligible["default", "other"][1]
    sim.put(local("new"))
    assert "new" in sim.state.pending.ineligible["default", "other"][1]


def test_changed_namespace_reevaluates_only_its_own_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = waiting_at("q")
    asked = looked_at(sim, monkeypatch)
    sim.state.namespace_changed("elsewhere")
    sim.run_until_idle()
    assert asked == []
    sim.state.namespace_changed("default")
    assert sorted(asked) == ["other", "w0", "w1", "w2", "w3", "w4"]
