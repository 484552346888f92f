"""Which workloads are admitted, in which flavor and order, and the reasons of those that stay pending."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, group, local, pod_set, queue, quota, workload

from torchyard.api.queue import messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.advice import with_advice
from torchyard.core.queue.decisions import Admit, Preempt, StayPending


def pending_reasons(sim: QueueSimulation) -> dict[str, ReasonMessage]:
    reasons: dict[str, ReasonMessage] = {}
    for _ in range(50):
        decisions = sim.run_cycle()
        reasons |= {decision.info.key[1]: decision.why for decision in decisions if isinstance(decision, StayPending)}
        if not any(isinstance(decision, Admit) for decision in decisions) and not sim.state.pending.active:
            return reasons
    raise AssertionError("the scheduler does not become idle")


def test_workload_is_admitted_as_a_whole_or_not_at_all() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=4), local(), workload("two", pod_set("a", cpu=3), pod_set("b", cpu=2)))
    why = pending_reasons(sim)["two"]
    assert sim.reserving() == set()
    assert why.reason == messages.REASON_EXCEEDS_MAX_QUOTA
    assert why.message == (
        "couldn't assign flavors to pod set b: insufficient quota for cpu in flavor default, previously considered"
        " podsets requests (3) + current podset request (2) > maximum capacity (4)"
    )


def test_pending_message_names_the_missing_quantity() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=10), local(), workload("a", cpu=9), workload("b", at=1, cpu=10))
    assert pending_reasons(sim)["b"] == (
        messages.REASON_WAITING_FOR_QUOTA,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 9 more needed",
    )


def test_workload_that_joins_an_inadmissible_heap_gets_its_reason() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=2), local(), workload("a", cpu=2), workload("b", at=1, cpu=2))
    pending_reasons(sim)
    sim.put(workload("c", at=2, cpu=2))
    [heap] = sim.state.pending.joined
    assert ("default", "c") in heap.unreported
    assert heap.pending_reason.message.endswith("2 more needed")


def test_best_effort_fifo_skips_a_blocked_head_and_strict_fifo_does_not() -> None:
    jobs = [workload("first", cpu=3), workload("large", at=1, cpu=4), workload("small", at=2, cpu=1)]
    assert QueueSimulation(flavor(), queue(), local(), *jobs).run_until_idle() == ["first", "small"]
    strict = queue(queueingStrategy="StrictFIFO")
    assert QueueSimulation(flavor(), strict, local(), *jobs).run_until_idle() == ["first"]


def test_higher_priority_is_admitted_first_then_longest_queued() -> None:
    jobs = [workload("c", at=9), workload("b", at=3), workload("a", at=9, priority=5), workload("d", at=9)]
    assert QueueSimulation(flavor(), queue(), local(), *jobs).run_until_idle() == ["a", "b", "c", "d"]


FLAVORS = [flavor("spot", {"kind": "spot"}), flavor("fast", {"kind": "fast"})]
TWO = group(("spot", [quota("cpu", 2)]), ("fast", [quota("cpu", 2)]))


def test_flavors_are_tried_in_order() -> None:
    sim = QueueSimulation(*FLAVORS, queue("team", TWO), local(), *(workload(name, cpu=1) for name in "abcd"))
    sim.run_until_idle()
    chosen = {
        name: obj["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] for name, obj in sim.objects.items()
    }
    assert chosen == {"a": "spot", "b": "spot", "c": "fast", "d": "fast"}


def test_node_selector_selects_flavor_by_the_flavors_own_keys() -> None:
    pods = pod_set(cpu=1)
    pods["template"]["spec"]["nodeSelector"] = {"kind": "fast", "zone": "anywhere"}
    sim = QueueSimulation(*FLAVORS, queue("team", TWO), local(), workload("a", pods))
    assert sim.run_until_idle() == ["a"]
    assert sim.objects["a"]["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "fast"}


def test_node_selector_without_matching_flavor_is_reported() -> None:
    pods = pod_set(cpu=1)
    pods["template"]["spec"]["nodeSelector"] = {"kind": "gold"}
    reason, message = pending_reasons(QueueSimulation(*FLAVORS, queue("team", TWO), local(), workload("a", pods)))["a"]
    assert reason == messages.REASON_NO_MATCHING_FLAVOR
    assert "flavor fast doesn't match node affinity, flavor spot doesn't match node affinity" in message


def test_node_selector_ignores_flavors_without_its_key() -> None:
    pods = pod_set(cpu=2)
    pods["template"]["spec"]["nodeSelector"] = {"kind": "fast"}
    plain = flavor("plain", {"zone": "a"})
    both = group(("plain", [quota("cpu", 2)]), ("fast", [quota("cpu", 2)]))
    sim = QueueSimulation(
        plain, FLAVORS[1], queue("team", both), local(), workload("a", pods), workload("b", pods, at=1)
    )
    assert sim.run_until_idle() == ["a", "b"]
    assert [next(iter(sim.state.cache.workloads["default", name].usage)) for name in "ab"] == [
        ("plain", "cpu"),
        ("fast", "cpu"),
    ]


def test_reported_reason_of_several_flavors_is_the_most_temporary_one() -> None:
    """Kueue's precedence: waiting for quota, exceeds the quota, no matching flavor."""
    pods = pod_set(cpu=3)
    pods["template"]["spec"]["nodeSelector"] = {"kind": "fast"}
    assert (
        pending_reasons(QueueSimulation(*FLAVORS, queue("team", TWO), local(), workload("a", pods)))["a"].reason
        == messages.REASON_EXCEEDS_MAX_QUOTA
    )


def test_pending_message_names_every_pod_set_that_does_not_fit() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    sim = QueueSimulation(flavor(), queue(cpu=4, preemption=policy), local(), workload("a", cpu=3, priority=5))
    sim.run_until_idle()
    sim.put(workload("b", pod_set("x", cpu=2), pod_set("y", cpu=1), at=1))
    assert pending_reasons(sim)["b"].message == (
        "couldn't assign flavors to pod set x: insufficient unused quota for cpu in flavor default, 1 more needed; "
        "couldn't assign flavors to pod set y: insufficient unused quota for cpu in flavor default, 2 more needed"
    )


def test_resource_without_quota_has_no_matching_flavor() -> None:
    reason, message = pending_reasons(
        QueueSimulation(flavor(), queue(), local(), workload("a", pod_set(cpu=1, gpu=1)))
    )["a"]
    assert reason == messages.REASON_NO_MATCHING_FLAVOR
    assert message.endswith("resource nvidia.com/gpu unavailable in ClusterQueue")


def test_flavor_with_untolerated_taint_is_not_used() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    tainted = flavor(nodeTaints=[taint])
    plain, tolerant = pod_set(cpu=1), pod_set(cpu=1)
    tolerant["template"]["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    sim = QueueSimulation(tainted, queue(), local(), workload("a", plain), workload("b", tolerant))
    reasons = pending_reasons(sim)
    assert sim.reserving() == {"b"}
    assert reasons["a"].message.endswith("untolerated taint {gpu yes NoSchedule <nil>} in flavor default")


def test_pending_message_names_the_resource_without_quota() -> None:
    sim = QueueSimulation(flavor(), queue(), local(), workload("a", pod_set(cpu=1, gpu=1)))
    assert pending_reasons(sim)["a"].message.endswith("resource nvidia.com/gpu unavailable in ClusterQueue")


COHORT = {
    "without limits": ({}, {}, 8),
    "with a borrowing limit": ({"borrowingLimit": 2}, {}, 6),
    "with a lending limit": ({}, {"lendingLimit": 1}, 5),
}


@pytest.mark.parametrize(("borrower", "lender", "admitted"), COHORT.values(), ids=COHORT)
def test_cluster_queue_borrows_within_borrowing_and_lending_limits(
    borrower: dict[str, int], lender: dict[str, int], admitted: int
) -> None:
    queues = [queue("team", cohort="all", **borrower), queue("other", cohort="all", **lender)]
    sim = QueueSimulation(flavor(), *queues, local(), *(workload(f"w{index}", at=index) for index in range(10)))
    sim.run_until_idle()
    assert len(sim.reserving()) == admitted


def test_lent_quota_is_reclaimed() -> None:
    policy = {"reclaimWithinCohort": "Any"}
    queues = [queue("team", cohort="all"), queue("other", cohort="all", preemption=policy)]
    sim = QueueSimulation(flavor(), *queues, local(), local("o", "other"), *(workload(f"w{i}", at=i) for i in range(8)))
    assert len(sim.run_until_idle()) == 8
    sim.put(workload("mine", queue="o", at=20, cpu=2))
    [decision] = [decision for decision in sim.run_cycle() if isinstance(decision, Preempt)]
    assert {target.reason for target in decision.targets} == {messages.REASON_IN_COHORT_RECLAMATION}
    assert len(decision.targets) == 2
    for target in decision.targets:
        sim.release(target.info.key[1])
    assert "mine" in sim.run_until_idle()


def test_lowest_priority_is_preempted_once_and_its_quota_held_until_released() -> None:
    sim = QueueSimulation(
        flavor(),
        queue(preemption={"withinClusterQueue": "LowerPriority"}),
        local(),
        workload("low", priority=1, cpu=2),
        workload("middle", priority=2, cpu=2),
    )
    sim.run_until_idle()
    sim.put(workload("high", priority=9, at=5, cpu=2))
    [decision] = [decision for decision in sim.run_cycle() if isinstance(decision, Preempt)]
    assert [target.info.key[1] for target in decision.targets] == ["low"]
    # Until its pods are gone no workload gets its quota, and it is not evicted twice.
    sim.put(workload("later", at=9, cpu=2))
    assert not any(isinstance(decision, Admit | Preempt) for decision in sim.run_cycle())
    sim.release("low")
    assert sim.run_until_idle() == ["high"]


def test_partial_admission_reduces_the_pod_count() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=4), local(), workload("a", pod_set(count=8, min_count=2, cpu=1)))
    assert sim.run_until_idle() == ["a"]
    assert sim.objects["a"]["status"]["admission"]["podSetAssignments"][0]["count"] == 4


def test_partially_admissible_workload_is_retried_when_its_min_count_fits() -> None:
    jobs = [workload("a", cpu=4), workload("b", pod_set(count=8, min_count=2, cpu=1), at=1)]
    sim = QueueSimulation(flavor(), queue(cpu=4), local(), *jobs)
    assert sim.run_until_idle() == ["a"]
    sim.finish("a")
    assert sim.run_until_idle() == ["b"]


def test_reclaimable_pods_release_their_quota() -> None:
    sim = QueueSimulation(
        flavor(), queue(cpu=4), local(), workload("a", pod_set(count=4, cpu=1)), workload("b", at=1, cpu=2)
    )
    assert sim.run_until_idle() == ["a"]
    obj = sim.objects["a"]
    obj["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    obj["metadata"]["resourceVersion"] = "999999999"
    sim.put(obj)
    assert sim.run_until_idle() == ["b"]


INELIGIBLE = {
    "an unknown queue": (
        workload("a", queue="nope"),
        "LocalQueue nope doesn't exist",
        "; LocalQueues in this namespace: held, q",
    ),
    "a stopped queue": (workload("a", queue="held"), "LocalQueue held is inactive", ": its stopPolicy is set"),
    "a workload on hold": (workload("a", active=False), "", ""),
}


def ineligible(sim: QueueSimulation, name: str) -> tuple[str, str]:
    """The message of a workload that is not eligible, without and with advice."""
    why, info = sim.state.pending.ineligible["default", name], sim.state.cache.workloads["default", name]
    return why.message, with_advice(sim.state, info, why)


@pytest.mark.parametrize(("obj", "message", "advice"), INELIGIBLE.values(), ids=INELIGIBLE)
def test_ineligible_workload_gets_the_reason(obj: dict[str, object], message: str, advice: str) -> None:
    sim = QueueSimulation(flavor(), queue(), local(), local("held", stopPolicy="Hold"), obj)
    assert sim.run_until_idle() == []
    assert ineligible(sim, "a") == (message, message + advice)


def test_namespace_without_local_queues_gets_a_hint_to_create_one() -> None:
    sim = QueueSimulation(flavor(), queue(), workload("a", queue="nope"))
    assert sim.run_until_idle() == []
    message = (
        "LocalQueue nope doesn't exist; this namespace has no LocalQueue; create one that refers to a ClusterQueue"
    )
    assert ineligible(sim, "a")[1] == message


def test_missing_flavor_makes_a_cluster_queue_inactive() -> None:
    sim = QueueSimulation(queue(), local(), workload("a"))
    assert sim.run_until_idle() == []
    assert ineligible(sim, "a") == (
        "ClusterQueue team is inactive",
        "ClusterQueue team is inactive: Can't admit new workloads: references missing ResourceFlavor(s): default."
        " Create it, or use one that `kubectl get resourceflavors` lists",
    )
    sim.put(flavor())
    assert sim.run_until_idle() == ["a"]


def test_cohort_cycle_stops_only_its_own_cluster_queues() -> None:
    cohorts = [
        {"metadata": {"name": name}, "spec": {"parentName": parent}}
        for name, parent in (("a", "b"), ("b", "c"), ("c", "a"))
    ]
    sim = QueueSimulation(flavor(), *cohorts, queue("team", cohort="a"), queue("free"), local(), local("f", "free"))
    sim.put(workload("stuck"), workload("fine", queue="f"))
    assert sim.run_until_idle() == ["fine"]
    assert "the cohorts a -> b -> c -> a form a cycle" in ineligible(sim, "stuck")[1]


def test_quota_of_the_cohort_itself_can_be_borrowed() -> None:
    shared = {
        "metadata": {"name": "all"},
        "spec": {"parentName": "", "resourceGroups": [group(("default", [quota("cpu", 3)]))]},
    }
    sim = QueueSimulation(
        flavor(), shared, queue(cpu=1, cohort="all"), local(), *(workload(f"w{i}", at=i) for i in range(9))
    )
    assert len(sim.run_until_idle()) == 4


def test_workload_is_retried_when_flavors_of_an_earlier_pod_set_change() -> None:
    flavors = group(("one", [quota("cpu", 1)]), ("two", [quota("cpu", 6)]))
    large = workload("large", pod_set("a", cpu="500m"), pod_set("b", count=3, cpu=2), at=1)
    sim = QueueSimulation(
        flavor("one"), flavor("two"), queue("team", flavors), local(), workload("small", cpu=1), large
    )
    assert sim.run_until_idle() == ["small"]
    sim.finish("small")
    assert sim.run_until_idle() == ["large"]


def test_partial_admission_preempts_for_fewer_pods() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    sim = QueueSimulation(flavor(), queue(cpu=6, preemption=policy), local())
    sim.put(workload("weak", cpu=3), workload("strong", cpu=3, priority=9))
    sim.run_until_idle()
    sim.put(workload("a", pod_set(count=6, min_count=2, cpu=1), priority=5))
    assert sim.run_until_idle() == ["a"]
    assert sim.reserving() == {"a", "strong"}
    assert sim.objects["a"]["status"]["admission"]["podSetAssignments"][0]["count"] == 3


def test_workload_is_retried_in_a_flavor_before_those_that_were_tried_last() -> None:
    """It waits for the first flavor, and the attempt that goes on after it finds only flavors that it cannot use."""
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    group_of_two = group(("plain", [quota("cpu", 2)]), ("spot", [quota("cpu", 2)]))
    policy: Any = {
        "flavorFungibility": {"whenCanPreempt": "MayStopSearch"},
        "preemption": {"reclaimWithinCohort": "Any"},
    }
    sim = QueueSimulation(flavor("plain"), flavor("spot", nodeTaints=[taint]))
    sim.put(
        queue("team", group_of_two, cohort="all", **policy),
        local(),
        workload("a", cpu=2),
    )
    assert sim.run_until_idle() == ["a"]
    sim.put(workload("b", cpu=2, at=1))
    assert sim.run_until_idle() == []
    sim.finish("a")
    assert sim.run_until_idle() == ["b"]
