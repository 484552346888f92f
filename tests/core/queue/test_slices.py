"""Workload slices of elastic jobs: their quota, their workloads, and which pods may start."""

from __future__ import annotations

from tests.support.queues import QueueSimulation, flavor, group, is_within_quota, local, pod_set, queue, quota, workload

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue import slices
from torchyard.core.queue.decisions import Admit, Preempt
from torchyard.core.queue.workload_info import admission_usage


def slice_of(name: str, count: int, *, replaces: str = "", at: int = 0, priority: int = 0) -> Object:
    obj = workload(name, pod_set(count=count, cpu=1), at=at, priority=priority)
    annotations = {names.ELASTIC: "true", **({names.REPLACES: f"default/{replaces}"} if replaces else {})}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def admit_slice(sim: QueueSimulation, name: str) -> Object:
    [decision] = [decision for decision in sim.run_cycle() if isinstance(decision, Admit)]
    assert decision.info.key[1] == name
    return sim.objects[name]


def test_growing_needs_quota_only_for_the_additional_pods() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=5), local(), slice_of("small", 3))
    assert sim.run_until_idle() == ["small"]
    sim.put(slice_of("large", 5, replaces="small", at=1))
    admit_slice(sim, "large")
    assert sim.reserving() == {"large"}
    assert is_within_quota(sim.state)


def test_larger_slice_waits_while_the_smaller_one_runs() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=5), local(), slice_of("small", 3), workload("other", at=1, cpu=1))
    sim.run_until_idle()
    sim.put(slice_of("large", 5, replaces="small", at=2))
    assert sim.run_until_idle() == []
    assert sim.reserving() == {"small", "other"}
    sim.finish("other")
    assert sim.run_until_idle() == ["large"]
    assert sim.reserving() == {"large"}


def test_elastic_job_grows_in_its_running_flavor() -> None:
    flavors = [flavor("spot", {"kind": "spot"}), flavor("fast", {"kind": "fast"})]
    both = group(("spot", [quota("cpu", 3)]), ("fast", [quota("cpu", 6)]))
    sim = QueueSimulation(*flavors, queue("team", both), local(), workload("first", cpu=3), slice_of("small", 2, at=1))
    assert sim.run_until_idle() == ["first", "small"]
    sim.finish("first")
    sim.put(slice_of("large", 3, replaces="small", at=2))
    status = admit_slice(sim, "large")["status"]
    assert status["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "fast"}


def test_growing_job_does_not_preempt_itself() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    sim = QueueSimulation(flavor(), queue(cpu=5, preemption=policy), local(), slice_of("small", 3, priority=5))
    sim.put(workload("low", at=1, cpu=2))
    sim.run_until_idle()
    sim.put(slice_of("large", 5, replaces="small", at=2, priority=9))
    [decision] = [decision for decision in sim.run_cycle() if isinstance(decision, Preempt)]
    assert [target.info.key[1] for target in decision.targets] == ["low"]


def admitted(name: str, count: int, *, at: int = 0) -> Object:
    sim = QueueSimulation(flavor(), queue(cpu=99), local(), slice_of(name, count, at=at))
    sim.run_until_idle()
    return sim.objects[name]


def test_shrinking_updates_the_workload_in_place() -> None:
    plan = slices.plan_slices([admitted("a", 5)], 2)
    assert plan.shrunk is not None
    assert plan.shrunk["spec"]["podSets"][0]["count"] == 2
    assert slices.admitted_count(plan.shrunk) == 2
    assert admission_usage(plan.shrunk) == {("default", "cpu"): 2000}
    assert slices.plan_slices([plan.shrunk], 2) == slices.SlicePlan()


def test_growing_creates_one_slice_and_replaces_it_when_the_size_changes() -> None:
    small = admitted("small", 2)
    assert slices.plan_slices([small], 4).grows
    pending = slice_of("four", 4, replaces="small", at=1)
    assert slices.plan_slices([small, pending], 4) == slices.SlicePlan()
    other = slices.plan_slices([small, pending], 6)
    assert other.grows
    assert other.obsolete == [pending]
    back = slices.plan_slices([small, pending], 2)
    assert (back.obsolete, back.grows, back.shrunk) == ([pending], False, None)


def test_smaller_slice_is_replaced_when_the_larger_is_admitted() -> None:
    small, large = admitted("small", 2), admitted("large", 4, at=1)
    plan = slices.plan_slices([large, small], 4)
    assert plan.replaced == [small]
    assert slices.current_slice([small, large]) is large


def pod(name: str, *, gated: bool = True, phase: str = "Pending") -> Object:
    gates = [{"name": names.ELASTIC}] if gated else []
    metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"schedulingGates": gates}, "status": {"phase": phase}}


def test_as_many_pods_are_ungated_as_are_admitted() -> None:
    pods = [pod("a", gated=False), pod("b"), pod("c"), pod("d", gated=False, phase="Succeeded"), pod("e")]
    assert [pod["metadata"]["name"] for pod in slices.pods_to_ungate(pods, 3)] == ["b", "c"]
    assert slices.pods_to_ungate(pods, 1) == []
    assert "schedulingGates" not in slices.ungate(pod("b"))["spec"]


def test_replacing_slice_is_the_latest_even_within_one_second() -> None:
    admitted = {
        "admission": {"podSetAssignments": [{"count": 1}]},
        "conditions": [{"type": "Admitted", "status": "True"}],
    }
    for old, new in (("a", "b"), ("b", "a")):
        pair = [{**slice_of(old, 2), "status": admitted}, {**slice_of(new, 4, replaces=old), "status": admitted}]
        assert slices.current_slice(pair)["metadata"]["name"] == new
        assert [workload["metadata"]["name"] for workload in slices.plan_slices(pair, 5).replaced] == [old]
