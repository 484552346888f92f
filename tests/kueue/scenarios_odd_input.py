"""Odd objects: quotas of zero, tiny quantities, queues that change under their workloads."""

from __future__ import annotations

from tests.kueue.harness import Scenario, cpu_group, group, pod_set, quota, scenario


def _base(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")


@scenario
def quota_of_zero_admits_what_requests_nothing(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("q", cpu_group(0))
    s.workload("nothing", "q", pod_set())
    s.workload("zero", "q", pod_set(cpu=0))
    s.workload("no-pods", "q", pod_set(count=0, cpu=1))
    s.workload("tiny", "q", pod_set(cpu="1m"))
    s.workload("nano", "q", pod_set(cpu="1n"))
    s.observe()


@scenario
def tiny_quantities_are_rounded_up(s: Scenario) -> None:
    _base(s)
    s.has_pending_reasons = False
    s.cluster_queue("q", group(("f", [quota("cpu", "3m"), quota("memory", 2)])))
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100u", "memory": "500m"}}}]
    for name in ("w0", "w1", "w2", "w3"):
        s.workload(name, "q", pod_set(containers=containers))
    s.observe()


@scenario
def flavor_that_a_queue_renames_keeps_its_workloads(s: Scenario) -> None:
    _base(s)
    s.flavor("g")
    s.cluster_queue("q", cpu_group(2))
    s.workload("old", "q", cpu=2)
    s.workload("waiting", "q", cpu=2)
    s.observe()
    renamed = s.prefixed([cpu_group(2, "g")])
    s.patch("ClusterQueue", "q", {"spec": {"resourceGroups": renamed}})
    s.observe()
    s.finish("old")
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"resourceGroups": s.prefixed([cpu_group(0, "missing")])}})
    s.workload("late", "q")
    s.observe()


@scenario
def pending_workload_is_deleted_with_its_queue(s: Scenario) -> None:
    _base(s)
    s.has_pending_reasons = False
    s.cluster_queue("q", cpu_group(1))
    s.workload("running", "q")
    s.workload("waiting", "q")
    s.workload("next", "q")
    s.observe()
    s.delete("Workload", "waiting", "ns")
    s.delete("LocalQueue", "q", "ns")
    s.observe()
    s.finish("running")
    s.observe()
    s.flavor("other")
    s.cluster_queue("r", cpu_group(1, "other"), local_queue="")
    s.local_queue("q", "r")
    s.observe()


@scenario
def resource_that_a_queue_drops_is_unavailable(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("q", group(("f", [quota("cpu", 2), quota("memory", 10)])))
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "5"}}}]
    s.workload("running", "q", pod_set(containers=containers))
    s.observe()
    s.patch("ClusterQueue", "q", {"spec": {"resourceGroups": s.prefixed([cpu_group(2)])}})
    s.workload("both", "q", pod_set(containers=containers))
    s.workload("cpu", "q")
    s.observe()


@scenario
def quota_below_the_usage_admits_nothing_more(s: Scenario) -> None:
    _base(s)
    for name in ("a", "b"):
        s.cluster_queue(name, cpu_group(3), cohort="all")
    s.workload("big", "a", cpu=5)
    s.observe()
    s.patch("ClusterQueue", "a", {"spec": {"resourceGroups": s.prefixed([cpu_group(0)])}})
    s.workload("small", "b")
    s.observe()
    s.finish("big")
    s.observe()


@scenario
def queue_moves_to_another_cohort_while_it_borrows(s: Scenario) -> None:
    _base(s)
    s.cluster_queue("a", cpu_group(1), cohort="left", preemption={"reclaimWithinCohort": "Any"})
    s.cluster_queue("b", cpu_group(3), cohort="left", preemption={"reclaimWithinCohort": "Any"})
    s.workload("borrows", "a", cpu=3)
    s.observe()
    s.patch("ClusterQueue", "a", {"spec": {"cohortName": s.named("right")}})
    s.workload("owner", "b", cpu=3)
    s.workload("waiting", "a")
    s.observe()


@scenario
def five_levels_of_cohorts_share_in_order(s: Scenario) -> None:
    _base(s)
    s.cohort("c0")
    for level in range(1, 5):
        s.cohort(f"c{level}", f"c{level - 1}", [cpu_group(1, lendingLimit=1)])
    policy = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    s.cluster_queue("deep", cpu_group(1), cohort="c4", preemption=policy)
    s.cluster_queue("high", cpu_group(1), cohort="c1", preemption=policy)
    s.workload("d0", "deep", cpu=4)
    s.observe()
    s.workload("h0", "high", cpu=2)
    s.observe()
    s.workload("h1", "high", cpu=1)
    s.observe()
    s.workload("d1", "deep", cpu=1, priority=1)
    s.observe()
