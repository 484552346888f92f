"""Jobs that change their size while they run: what they hold, what they ask for, which pods may start."""

from __future__ import annotations

from tests.support.queues import World, flavor, group, is_never_exceeded, local, pod_set, queue, quota, workload

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue import slices
from torchyard.core.queue.scheduler import Admit, Preempt


def slice_of(name: str, count: int, *, replaces: str = "", at: int = 0, priority: int = 0) -> Object:
    obj = workload(name, pod_set(count=count, cpu=1), at=at, priority=priority)
    annotations = {names.ELASTIC: "true", **({names.REPLACES: f"default/{replaces}"} if replaces else {})}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def grown(world: World, name: str) -> Object:
    [decision] = [one for one in world.round() if isinstance(one, Admit)]
    assert decision.item.key[1] == name
    return world.objects[name]


def test_growing_needs_quota_only_for_what_is_more() -> None:
    world = World(flavor(), queue(cpu=5), local(), slice_of("small", 3))
    assert world.settle() == ["small"]
    world.put(slice_of("large", 5, replaces="small", at=1))
    grown(world, "large")
    assert world.holding() == {"large"}
    assert is_never_exceeded(world.book)


def test_what_does_not_fit_waits_and_the_smaller_one_runs_on() -> None:
    world = World(flavor(), queue(cpu=5), local(), slice_of("small", 3), workload("other", at=1, cpu=1))
    world.settle()
    world.put(slice_of("large", 5, replaces="small", at=2))
    assert world.settle() == []
    assert world.holding() == {"small", "other"}
    world.finish("other")
    assert world.settle() == ["large"]
    assert world.holding() == {"large"}


def test_a_job_grows_in_the_flavor_it_runs_in() -> None:
    flavors = [flavor("spot", {"kind": "spot"}), flavor("fast", {"kind": "fast"})]
    both = group(("spot", [quota("cpu", 3)]), ("fast", [quota("cpu", 6)]))
    world = World(*flavors, queue("team", both), local(), workload("first", cpu=3), slice_of("small", 2, at=1))
    assert world.settle() == ["first", "small"]
    world.finish("first")
    world.put(slice_of("large", 3, replaces="small", at=2))
    status = grown(world, "large")["status"]
    assert status["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "fast"}


def test_a_job_that_grows_does_not_preempt_itself() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    world = World(flavor(), queue(cpu=5, preemption=policy), local(), slice_of("small", 3, priority=5))
    world.put(workload("low", at=1, cpu=2))
    world.settle()
    world.put(slice_of("large", 5, replaces="small", at=2, priority=9))
    [decision] = [one for one in world.round() if isinstance(one, Preempt)]
    assert [target.item.key[1] for target in decision.targets] == ["low"]


def admitted(name: str, count: int, *, at: int = 0) -> Object:
    world = World(flavor(), queue(cpu=99), local(), slice_of(name, count, at=at))
    world.settle()
    return world.objects[name]


def test_shrinking_gives_back_in_place() -> None:
    plan = slices.plan([admitted("a", 5)], 2)
    assert plan.shrunk is not None
    assert plan.shrunk["spec"]["podSets"][0]["count"] == 2
    [given] = plan.shrunk["status"]["admission"]["podSetAssignments"]
    assert (given["count"], given["resourceUsage"]) == (2, {"cpu": "2"})
    assert slices.plan([plan.shrunk], 2) == slices.Plan()


def test_growing_asks_once_and_anew_when_the_wish_changes() -> None:
    small = admitted("small", 2)
    assert slices.plan([small], 4).grows
    waiting = slice_of("four", 4, replaces="small", at=1)
    assert slices.plan([small, waiting], 4) == slices.Plan()
    other = slices.plan([small, waiting], 6)
    assert other.grows
    assert other.unwanted == [waiting]
    back = slices.plan([small, waiting], 2)
    assert (back.unwanted, back.grows, back.shrunk) == ([waiting], False, None)


def test_the_smaller_one_ends_when_the_larger_is_admitted() -> None:
    small, large = admitted("small", 2), admitted("large", 4, at=1)
    plan = slices.plan([large, small], 4)
    assert plan.replaced == [small]
    assert slices.current([small, large]) is large


def pod(name: str, *, gated: bool = True, phase: str = "Pending") -> Object:
    gates = [{"name": names.ELASTIC}] if gated else []
    metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"schedulingGates": gates}, "status": {"phase": phase}}


def test_as_many_pods_start_as_were_admitted() -> None:
    pods = [pod("a", gated=False), pod("b"), pod("c"), pod("d", gated=False, phase="Succeeded"), pod("e")]
    assert [one["metadata"]["name"] for one in slices.to_open(pods, 3)] == ["b", "c"]
    assert slices.to_open(pods, 1) == []
    assert "schedulingGates" not in slices.opened(pod("b"))["spec"]


def test_of_two_sizes_of_one_second_the_one_that_replaces_is_the_newest() -> None:
    admitted = {
        "admission": {"podSetAssignments": [{"count": 1}]},
        "conditions": [{"type": "Admitted", "status": "True"}],
    }
    for old, new in (("a", "b"), ("b", "a")):
        pair = [{**slice_of(old, 2), "status": admitted}, {**slice_of(new, 4, replaces=old), "status": admitted}]
        assert slices.current(pair)["metadata"]["name"] == new
        assert [one["metadata"]["name"] for one in slices.plan(pair, 5).replaced] == [old]
