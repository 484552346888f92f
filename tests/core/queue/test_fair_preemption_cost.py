"""Fair preemption in a cohort of many queues: whoever cannot preempt by shares costs no search."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kueue.case_simulation import simulate
from tests.kueue.random_cases import FIRST_FAIR, generate
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue import preemption
from torchyard.core.queue.fair_preemption import FairTargetSearch, ShareComparison
from torchyard.core.queue.settings import FairSharing, QueueSettings

_RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}
_QUEUES = 8


def _balanced_cohort() -> QueueSimulation:
    """Queues that borrow as much as each other, and have more workloads that wait."""
    sim = QueueSimulation(flavor(), settings=QueueSettings(fair_sharing=FairSharing()))
    sim.put(queue("owner", cpu=2 * _QUEUES, cohort="all"), local("owner", "owner"))
    for number in range(_QUEUES):
        name = f"q{number}"
        sim.put(queue(name, cpu=0, cohort="all", preemption=_RECLAIM), local(name, name))
        sim.put(*(workload(f"{name}-{at}", queue=name, cpu=1, at=at) for at in range(6)))
    sim.run_until_idle()
    return sim


def test_released_quota_starts_no_search_in_queues_that_have_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = _balanced_cohort()
    before = sim.reserving()
    searches: list[FairTargetSearch] = []

    def counted(*arguments: Any) -> FairTargetSearch:
        searches.append(FairTargetSearch(*arguments))
        return searches[-1]

    monkeypatch.setattr(preemption, "FairTargetSearch", counted)
    sim.state.remove_workload(("default", "q0-0"))
    sim.run_until_idle()
    assert sorted(sim.reserving() - before) == ["q0-2"]
    assert not searches


def test_comparison_of_shares_rules_out_no_preemption_that_a_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases are those that are compared with Kueue, from each of the strategies."""
    ruled_out = 0
    may_preempt = ShareComparison.may_preempt
    fair_targets = preemption._TargetSearch.fair_targets

    def checked(search: Any, settings: FairSharing) -> Any:
        nonlocal ruled_out
        targets = fair_targets(search, settings)
        if not targets:
            with monkeypatch.context() as patch:
                patch.setattr(ShareComparison, "may_preempt", lambda *_: True)
                assert fair_targets(search, settings) == []
            ruled_out += not may_preempt(ShareComparison(()), search._cq.node, search._usage, search._keys)
        return targets

    monkeypatch.setattr(preemption._TargetSearch, "fair_targets", checked)
    for first in (FIRST_FAIR, FIRST_FAIR + 1000, FIRST_FAIR + 2000):
        for seed in range(first, first + 8):
            simulate(generate(seed))
    assert ruled_out > 0
