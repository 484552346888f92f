"""Who gets quota when there is not enough: cohorts of several levels, preemption, reclaimable pods."""

from __future__ import annotations

from tests.kueue.harness import Scenario, container, cpu_group, group, pod_set, quota, scenario

_LOWER = {"withinClusterQueue": "LowerPriority"}
_RECLAIM = {"reclaimWithinCohort": "Any"}


def _base(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")


@scenario
def cohort_tree_lends_its_own_quota(s: Scenario) -> None:
    _base(s)
    s.cohort("root", groups=[cpu_group(10)])
    s.cohort("left", "root")
    s.cohort("right", "root", groups=[cpu_group(2)])
    s.cluster_queue("a", cpu_group(0), cohort="left")
    s.cluster_queue("b", cpu_group(1), cohort="right")
    s.workload("large", "a", cpu=11)
    s.workload("too-large", "a", cpu=14)
    s.observe()
    s.finish("large")
    s.observe()
    s.workload("other", "b", cpu=3)
    s.observe()


@scenario
def cohort_limits_bound_the_subtree(s: Scenario) -> None:
    _base(s)
    s.cohort("root", groups=[cpu_group(10)])
    s.cohort("left", "root", groups=[cpu_group(2, borrowingLimit=3)])
    s.cohort("right", "root", groups=[cpu_group(4, lendingLimit=1)])
    s.cluster_queue("a", cpu_group(0), cohort="left")
    s.cluster_queue("b", cpu_group(0), cohort="right")
    s.workload("six", "a", cpu=6)
    s.workload("five", "a", cpu=5)
    s.observe()
    s.workload("nine", "b", cpu=9)
    s.observe()


@scenario
def quota_moves_with_a_cohorts_parent(s: Scenario) -> None:
    _base(s)
    s.cohort("root", groups=[cpu_group(10)])
    s.cohort("leaf")
    s.cluster_queue("a", cpu_group(1), cohort="leaf")
    s.workload("w", "a", cpu=5)
    s.observe()
    s.patch("Cohort", "leaf", {"spec": {"parentName": s.named("root")}})
    s.observe()


@scenario
def preemption_reclaims_across_a_tree(s: Scenario) -> None:
    _base(s)
    s.cohort("root")
    s.cohort("left", "root")
    s.cohort("right", "root")
    s.cluster_queue("a", cpu_group(4), cohort="left", preemption=_RECLAIM)
    s.cluster_queue("b", cpu_group(2), cohort="left")
    s.cluster_queue("c", cpu_group(2), cohort="right")
    s.workload("c1", "c", cpu=2)
    s.workload("c2", "c", cpu=2)
    s.workload("c3", "c", cpu=2)
    s.workload("b1", "b", cpu=2)
    s.observe()
    s.workload("a1", "a", cpu=3)
    s.observe()


@scenario
def preemption_takes_newer_workloads_of_equal_priority(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(4), preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    s.workload("filler", "a", cpu=4, priority=10)
    s.workload("older", "a", cpu=3)
    s.workload("newer", "a", cpu=2)
    s.observe()
    s.workload("small", "a", cpu=1)
    s.finish("filler")
    s.observe()
    s.patch("ClusterQueue", "a", {"spec": {"stopPolicy": "HoldAndDrain"}})
    s.observe()
    s.patch("ClusterQueue", "a", {"spec": {"stopPolicy": "None"}})
    s.observe()


@scenario
def newer_workload_is_preempted_by_an_older_one(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(3), preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    s.local_queue("held", "a", stopPolicy="Hold")
    s.workload("older", "held", cpu=3)
    s.workload("newer", "a", cpu=2)
    s.observe()
    s.patch("LocalQueue", "held", {"spec": {"stopPolicy": "None"}}, namespace="ns")
    s.observe()


@scenario
def preemption_within_a_queue_takes_the_lowest_priority(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(4), preemption=_LOWER)
    s.workload("low", "a", cpu=2, priority=-1)
    s.workload("middle", "a", cpu=2)
    s.observe()
    s.workload("high", "a", cpu=2, priority=1)
    s.observe()
    s.workload("same", "a", cpu=2, priority=1)
    s.observe()


@scenario
def borrowing_queue_that_lost_quota(s: Scenario) -> None:
    _base(s)
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    s.cluster_queue("a", cpu_group(4), cohort="all", preemption=policy)
    s.cluster_queue("b", cpu_group(4), cohort="all", preemption=policy)
    s.workload("a1", "a", cpu=4)
    s.workload("a2", "a", cpu=4)
    s.observe()
    s.workload("b1", "b", cpu=4, priority=5)
    s.observe()
    s.patch("ClusterQueue", "a", {"spec": {"resourceGroups": s.prefixed([cpu_group(2)])}})
    s.workload("a3", "a", cpu=2, priority=1)
    s.observe()
    s.finish("b1")
    s.observe()


@scenario
def borrow_within_cohort_preempts_below_the_threshold(s: Scenario) -> None:
    _base(s)
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": 0}
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any", "borrowWithinCohort": borrow}
    s.cluster_queue("a", cpu_group(2), cohort="all", preemption=policy)
    s.cluster_queue("b", cpu_group(2), cohort="all")
    s.cluster_queue("shared", cpu_group(4), cohort="all")
    s.workload("b1", "b", cpu=3, priority=-1)
    s.workload("b2", "b", cpu=3, priority=1)
    s.observe()
    s.workload("a1", "a", cpu=4, priority=2)
    s.observe()


@scenario
def strict_guaranteed_queue_keeps_its_quota_from_best_effort(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("guaranteed", cpu_group(4), cohort="all", queueingStrategy="StrictFIFO")
    s.cluster_queue("best-effort", cpu_group(1), cohort="all", preemption=_LOWER)
    s.workload("g1", "guaranteed", cpu=3)
    s.workload("e1", "best-effort", cpu=1)
    s.workload("g2", "guaranteed", cpu=3)
    s.observe()
    s.workload("e2", "best-effort", cpu=1)
    s.observe()
    s.finish("e1")
    s.observe()
    s.finish("g1")
    s.observe()


@scenario
def reclaimable_pods_before_admission_are_not_counted(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(4))
    s.workload("filler", "a", cpu=4)
    s.workload("w", "a", pod_set(count=6, cpu=1))
    s.observe()
    s.patch_workload_status("w", {"reclaimablePods": [{"name": "main", "count": 2}]})
    s.finish("filler")
    s.observe()
    s.patch_workload_status("w", {"reclaimablePods": [{"name": "main", "count": 3}]})
    s.observe()


@scenario
def reclaimable_pods_let_a_preempted_workload_start_again(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(5), preemption=_LOWER)
    s.workload("low", "a", pod_set(count=2, cpu=1), priority=-1)
    s.workload("high", "a", pod_set(count=2, cpu=2), priority=1)
    s.observe()
    s.patch_workload_status("high", {"reclaimablePods": [{"name": "main", "count": 1}]})
    s.observe()


@scenario
def flavors_are_tried_in_order(s: Scenario) -> None:
    _base(s)
    s.flavor("g")
    two = group(("f", [quota("cpu", 2)]), ("g", [quota("cpu", 2)]))
    for name, fungibility in (
        ("default", {}),
        ("preempt", {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}),
        ("next", {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}),
    ):
        s.cluster_queue(name, two, cohort=f"c-{name}", preemption=_LOWER, flavorFungibility=fungibility)
        s.cluster_queue(f"{name}-other", two, cohort=f"c-{name}")
        s.workload(f"{name}-low", name, cpu=2, priority=-1)
        s.workload(f"{name}-high", name, cpu=2, priority=1)
        s.workload(f"{name}-more", name, cpu=3, priority=1)
    s.observe()


@scenario
def partial_admission_takes_what_fits(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(5))
    s.workload("first", "a", cpu=2)
    s.workload("partial", "a", {**pod_set(count=6, cpu=1), "minCount": 2})
    s.workload("impossible", "a", {**pod_set(count=6, cpu=1), "minCount": 4})
    s.observe()


@scenario
def pods_resource_counts_pods(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", group(("f", [quota("cpu", 9), quota("pods", 3)])))
    s.workload("two", "a", pod_set(count=2, cpu=1))
    s.workload("three", "a", pod_set(count=2, containers=[container(requests={"cpu": "1"})]))
    s.observe()
