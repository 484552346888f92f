"""The head of a StrictFIFO queue waits for quota that others borrowed: as in Kueue, it is not borrowed again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.api.queue import messages
from torchyard.core.queue.advice import with_advice
from torchyard.core.queue.decisions import StayPending

STRICT: Any = {"queueingStrategy": "StrictFIFO", "cohort": "all"}


def simulate_lent_quota(owner: dict[str, Any]) -> QueueSimulation:
    """An owner of four cpus, which two borrowers use, and its pending workload `whole`, which needs all four."""
    sim = QueueSimulation(flavor(), queue("mine", cpu=4, **owner), queue("theirs", cpu=1, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"))
    sim.put(*(workload(name, cpu=2, queue="theirs") for name in ("a", "b")))
    assert sorted(sim.run_until_idle()) == ["a", "b"]
    sim.put(workload("whole", cpu=4, queue="mine", at=5))
    assert sim.run_until_idle() == []
    return sim


def test_quota_needed_by_a_strict_head_is_not_borrowed_again() -> None:
    sim = simulate_lent_quota(STRICT)
    for name, next_name in (("a", "c"), ("b", "d")):
        sim.put(workload(next_name, cpu=2, queue="theirs", priority=9))
        sim.finish(name)
        sim.run_until_idle()
    assert sim.reserving() == {"whole"}


POLICIES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "BestEffortFIFO holds nothing": ({"cohort": "all"}, {"c", "b"}),
    "StrictFIFO that may reclaim from any lets others borrow": (
        {**STRICT, "preemption": {"reclaimWithinCohort": "Any"}},
        {"whole"},
    ),
    "StrictFIFO that may reclaim from lower priority only holds": (
        {**STRICT, "preemption": {"reclaimWithinCohort": "LowerPriority"}},
        {"b"},
    ),
}


@pytest.mark.parametrize(("owner", "reserving"), POLICIES.values(), ids=POLICIES)
def test_queueing_and_reclaim_policy_decide_whether_quota_is_held(owner: dict[str, Any], reserving: set[str]) -> None:
    sim = QueueSimulation(flavor(), queue("mine", cpu=4, **owner), queue("theirs", cpu=1, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"))
    sim.put(*(workload(name, cpu=2, queue="theirs") for name in ("a", "b")))
    sim.run_until_idle()
    sim.put(workload("whole", cpu=4, queue="mine", at=5), workload("c", cpu=2, queue="theirs", at=6))
    sim.finish("a")
    sim.run_until_idle()
    assert sim.reserving() == reserving


def test_blocked_borrower_gets_the_owner_of_the_quota_and_is_not_passed() -> None:
    sim = simulate_lent_quota(STRICT)
    sim.put(workload("large", cpu=2, queue="theirs", at=6), workload("small", cpu=1, queue="theirs", at=7))
    sim.finish("a")
    decisions = sim.run_cycle()
    reasons = {decision.info.key[1]: decision.why for decision in decisions if isinstance(decision, StayPending)}
    assert reasons["large"] == (messages.REASON_QUOTA_HELD, messages.NO_LONGER_FITS)
    assert with_advice(sim.state, sim.state.cache.workloads["default", "large"], reasons["large"]).endswith(
        "is reserved for the first pending workload of its owner, StrictFIFO ClusterQueue mine"
    )
    assert sim.run_until_idle() == []
    sim.finish("b")
    assert sorted(sim.run_until_idle()) == ["small", "whole"]


def test_held_quota_does_not_block_a_queues_own_quota() -> None:
    sim = simulate_lent_quota(STRICT)
    sim.put(queue("third", cpu=2, cohort="all"), local("third", "third"), workload("own", cpu=2, queue="third"))
    assert sim.run_until_idle() == ["own"]


def test_deleted_head_lets_others_borrow_again() -> None:
    sim = simulate_lent_quota(STRICT)
    sim.put(workload("c", cpu=2, queue="theirs", at=6))
    sim.finish("a")
    assert sim.run_until_idle() == []
    sim.finish("whole")
    assert sim.run_until_idle() == ["c"]


def test_new_head_that_never_fits_lets_others_borrow_again() -> None:
    """Nothing is reserved for a head that fits in no case, and the one behind it is not the head any more."""
    sim = simulate_lent_quota(STRICT)
    sim.put(workload("c", cpu=2, queue="theirs", at=6))
    sim.finish("a")
    assert sim.run_until_idle() == []
    sim.put(workload("impossible", cpu=20, queue="mine", priority=9))
    assert sim.run_until_idle() == ["c"]


def test_advice_names_no_owner_when_no_quota_is_held_any_more() -> None:
    sim = simulate_lent_quota(STRICT)
    sim.put(workload("large", cpu=2, queue="theirs", at=6))
    sim.finish("a")
    decisions = sim.run_cycle()
    reasons = {decision.info.key[1]: decision.why for decision in decisions if isinstance(decision, StayPending)}
    why = reasons["large"]
    assert why.reason == messages.REASON_QUOTA_HELD
    sim.finish("whole")
    assert with_advice(sim.state, sim.state.cache.workloads["default", "large"], why) == why.message


def test_higher_priority_head_leaves_quota_held_for_the_next_head() -> None:
    sim = simulate_lent_quota(STRICT)
    sim.put(workload("urgent", cpu=1, queue="mine", priority=9))
    sim.finish("a")
    assert sim.run_until_idle() == ["urgent"]
    sim.put(workload("c", cpu=1, queue="theirs", at=6))
    assert sim.run_until_idle() == []
    sim.finish("b")
    assert sim.run_until_idle() == ["c"], (
        "three of four are held for `whole`, `urgent` uses the fourth, and `c` fits into its own queue's quota"
    )
    sim.finish("urgent")
    assert sim.run_until_idle() == ["whole"]


def test_quota_beyond_nominal_is_not_held() -> None:
    sim = QueueSimulation(flavor(), queue("mine", cpu=2, **STRICT), queue("theirs", cpu=2, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("a", cpu=3, queue="theirs"))
    sim.run_until_idle()
    sim.put(workload("whole", cpu=4, queue="mine", at=5), workload("b", cpu=1, queue="theirs", at=6))
    assert sim.run_until_idle() == ["b"]


def test_a_limit_below_the_usage_leaves_the_cohort_its_quota() -> None:
    """The blocked head of a queue that uses more than it may now reserves nothing, however many cycles it waits."""
    owner = {"queueingStrategy": "StrictFIFO", "cohort": "all"}
    sim = QueueSimulation(flavor(), queue("mine", cpu=8, **owner), queue("theirs", cpu=12, cohort="all"))
    sim.put(local("mine", "mine"), local("theirs", "theirs"), workload("first", cpu=8, queue="mine"))
    assert sim.run_until_idle() == ["first"]
    sim.put(queue("mine", cpu=4, borrowingLimit=2, **owner), workload("next", cpu=2, queue="mine", at=5))
    for number in range(4):
        sim.put(workload(f"small-{number}", cpu=1, queue="theirs", at=6 + number))
        assert sim.run_until_idle() == [f"small-{number}"]
    sim.put(workload("rest", cpu=4, queue="theirs", at=20))
    assert sim.run_until_idle() == ["rest"]
