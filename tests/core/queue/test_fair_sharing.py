"""Fair sharing: who is admitted and who is preempted by dominant resource shares, and what statuses show."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, pod_set, queue, workload

from torchyard.core.queue.dominant_resource_share import MAX_INT64, dominant_resource_share
from torchyard.core.queue.queue_status import cluster_queue_status, fair_sharing_status
from torchyard.core.queue.settings import FINAL_SHARE, INITIAL_SHARE, FairSharing, QueueSettings

ANY = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def team(name: str, cpu: int = 0, weight: str | int | None = None, cohort: str = "all", **spec: Any) -> list[Any]:
    sharing = {} if weight is None else {"fairSharing": {"weight": weight}}
    return [queue(name, cpu=cpu, cohort=cohort, preemption=ANY, **sharing, **spec), local(name, name)]


def simulation(*objects: Any, strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)) -> QueueSimulation:
    return QueueSimulation(flavor(), *objects, settings=QueueSettings(fair_sharing=FairSharing(strategies)))


def share(sim: QueueSimulation, name: str) -> float:
    return dominant_resource_share(sim.state.cache.cluster_queues[name].node).value


def test_unused_quota_is_shared_equally() -> None:
    sim = simulation(*team("owner", cpu=6), *team("a"), *team("b"))
    sim.put(*(workload(f"a{n}", queue="a", at=n) for n in range(6)))
    sim.put(*(workload(f"b{n}", queue="b", at=10 + n) for n in range(6)))
    sim.run_until_idle(evict=False)
    assert sorted(sim.reserving()) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_unused_quota_is_shared_by_weight() -> None:
    sim = simulation(*team("owner", cpu=6), *team("a", weight=2), *team("b"))
    sim.put(*(workload(f"a{n}", queue="a", at=n) for n in range(6)))
    sim.put(*(workload(f"b{n}", queue="b", at=10 + n) for n in range(6)))
    sim.run_until_idle()
    assert sorted(name[0] for name in sim.reserving()) == [*"aaaabb"]
    assert share(sim, "a") == pytest.approx(1000 * 4 / 6 / 2)
    assert share(sim, "b") == pytest.approx(1000 * 2 / 6)


def test_workload_within_its_quota_is_before_one_that_borrows() -> None:
    sim = simulation(*team("owner", cpu=2), *team("a", weight=1000))
    sim.put(workload("borrows", queue="a", priority=5), workload("own", queue="owner", cpu=2, at=5))
    sim.run_until_idle(evict=False)
    assert sim.reserving() == {"own"}


def test_queue_below_its_share_preempts_one_above_until_the_shares_are_equal() -> None:
    sim = simulation(*team("owner", cpu=6), *team("a"), *team("b"))
    sim.put(*(workload(f"a{n}", queue="a", at=n) for n in range(6)))
    sim.run_until_idle()
    sim.put(*(workload(f"b{n}", queue="b", at=10 + n) for n in range(6)))
    sim.run_until_idle()
    assert sorted(name[0] for name in sim.reserving()) == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("strategies", "is_admitted"),
    [((FINAL_SHARE,), False), ((INITIAL_SHARE,), True), ((FINAL_SHARE, INITIAL_SHARE), True)],
)
def test_strategies_differ_for_one_large_workload(strategies: tuple[str, ...], is_admitted: bool) -> None:
    """Without it, the other queue would have a smaller share than the preemptor."""
    sim = simulation(*team("owner", cpu=6), *team("a"), *team("b"), strategies=strategies)
    sim.put(workload("large", queue="a", cpu=6))
    sim.run_until_idle()
    sim.put(workload("small", queue="b", cpu=4, at=10))
    sim.run_until_idle()
    assert sim.reserving() == ({"small"} if is_admitted else {"large"})


def test_owner_reclaims_its_quota_whatever_the_shares_are() -> None:
    sim = simulation(*team("owner", cpu=6, weight=0), *team("a", weight=1000))
    sim.put(*(workload(f"a{n}", queue="a", at=n) for n in range(6)))
    sim.run_until_idle()
    sim.put(workload("own", pod_set(cpu=4), queue="owner", at=10))
    assert "a5 preempted" in sim.run_and_log()
    assert "own" in sim.reserving()


def test_workload_that_preempted_often_reclaims_the_quota_of_its_own_queue() -> None:
    """It may not preempt to borrow any more, after the cohort reclaimed what it had borrowed."""
    sim = simulation(*team("owner", cpu=6), *team("a"))
    sim.put(*(workload(f"a{n}", queue="a", at=n) for n in range(6)))
    sim.run_until_idle()
    reclaimed = {"type": "Preempted", "status": "True", "reason": "InCohortReclamation", "message": ""}
    own = {**workload("own", queue="owner", cpu=4, at=10), "status": {"conditions": [reclaimed]}}
    sim.put(own)
    sim.state.cache.workloads["default", "own"].preemption_rounds = 99
    sim.run_until_idle()
    assert "own" in sim.reserving()


def test_shares_are_compared_at_every_level_of_cohorts() -> None:
    """Two queues of one department get as much together as the only queue of the other."""
    cohorts = [{"metadata": {"name": name}, "spec": {"parentName": "all"}} for name in ("left", "right")]
    sim = simulation(*cohorts, *team("owner", cpu=8), *team("a", cohort="left"), *team("b", cohort="left"))
    sim.put(*team("c", cohort="right"))
    sim.put(*(workload(f"{name}{n}", queue=name, at=n) for name in "abc" for n in range(8)))
    sim.run_until_idle()
    assert sorted(name[0] for name in sim.reserving()) == [*"aabbcccc"]
    assert fair_sharing_status(sim.state.cache.cohorts["left"]) == {"fairSharing": {"weightedShare": 500}}


def test_status_shows_the_share_rounded_up_and_the_largest_number_for_weight_zero() -> None:
    sim = simulation(*team("owner", cpu=3), *team("a"), *team("b", weight=0))
    sim.put(workload("a0", queue="a"), workload("b0", queue="b"))
    sim.run_until_idle()
    shares = {
        name: cluster_queue_status(cq, "", is_fair=True)["fairSharing"]["weightedShare"]
        for name, cq in sim.state.cache.cluster_queues.items()
    }
    assert shares == {"owner": 0, "a": 334, "b": MAX_INT64}


def test_status_has_no_share_without_fair_sharing() -> None:
    sim = QueueSimulation(flavor(), *team("owner", cpu=3))
    sim.run_until_idle()
    assert "fairSharing" not in cluster_queue_status(sim.state.cache.cluster_queues["owner"], "")
