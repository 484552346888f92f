"""Who is admitted, in which flavor, in which order, and what is said to those who wait."""

from __future__ import annotations

import pytest
from tests.support.queues import World, flavor, group, local, pod_set, queue, quota, workload

from torchyard.api.queue import messages
from torchyard.core.queue.scheduler import Admit, Preempt, Wait


def waits(world: World) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for _ in range(50):
        decisions = world.round()
        found |= {one.item.key[1]: (one.reason, one.message) for one in decisions if isinstance(one, Wait)}
        if not any(isinstance(one, Admit) for one in decisions):
            return found
    raise AssertionError("it does not come to rest")


def test_a_workload_fits_as_a_whole_or_not_at_all() -> None:
    world = World(flavor(), queue(cpu=4), local(), workload("two", pod_set("a", cpu=3), pod_set("b", cpu=2)))
    said = waits(world)["two"]
    assert world.holding() == set()
    assert said[0] == messages.TOO_BIG
    assert said[1] == (
        "couldn't assign flavors to pod set b: insufficient quota for cpu in flavor default, previously considered"
        " podsets requests (3) + current podset request (2) > maximum capacity (4)"
    )


def test_the_missing_amount_is_told() -> None:
    world = World(flavor(), queue(cpu=10), local(), workload("a", cpu=9), workload("b", at=1, cpu=10))
    assert waits(world)["b"] == (
        messages.WAITING,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 9 more needed",
    )


def test_who_comes_later_is_told_what_the_others_were() -> None:
    world = World(flavor(), queue(cpu=2), local(), workload("a", cpu=2), workload("b", at=1, cpu=2))
    waits(world)
    world.put(workload("c", at=2, cpu=2))
    [lane] = world.book.joined
    assert ("default", "c") in lane.untold
    assert lane.said[1].endswith("2 more needed")


def test_best_effort_lets_others_pass_and_strict_does_not() -> None:
    jobs = [workload("first", cpu=3), workload("large", at=1, cpu=4), workload("small", at=2, cpu=1)]
    assert World(flavor(), queue(), local(), *jobs).settle() == ["first", "small"]
    strict = queue(queueingStrategy="StrictFIFO")
    assert World(flavor(), strict, local(), *jobs).settle() == ["first"]


def test_higher_priority_goes_first_and_then_who_waits_longest() -> None:
    jobs = [workload("c", at=9), workload("b", at=3), workload("a", at=9, priority=5), workload("d", at=9)]
    assert World(flavor(), queue(), local(), *jobs).settle() == ["a", "b", "c", "d"]


FLAVORS = [flavor("spot", {"kind": "spot"}), flavor("fast", {"kind": "fast"})]
TWO = group(("spot", [quota("cpu", 2)]), ("fast", [quota("cpu", 2)]))


def test_flavors_are_tried_in_order() -> None:
    world = World(*FLAVORS, queue("team", TWO), local(), *(workload(name, cpu=1) for name in "abcd"))
    world.settle()
    chosen = {
        name: obj["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"]
        for name, obj in world.objects.items()
    }
    assert chosen == {"a": "spot", "b": "spot", "c": "fast", "d": "fast"}


def test_a_node_selector_chooses_the_flavor_by_its_own_keys() -> None:
    wish = pod_set(cpu=1)
    wish["template"]["spec"]["nodeSelector"] = {"kind": "fast", "zone": "anywhere"}
    world = World(*FLAVORS, queue("team", TWO), local(), workload("a", wish))
    assert world.settle() == ["a"]
    assert world.objects["a"]["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "fast"}


def test_a_selector_for_other_hardware_matches_no_flavor() -> None:
    wish = pod_set(cpu=1)
    wish["template"]["spec"]["nodeSelector"] = {"kind": "gold"}
    reason, said = waits(World(*FLAVORS, queue("team", TWO), local(), workload("a", wish)))["a"]
    assert reason == messages.NO_FLAVOR
    assert "flavor fast doesn't match node affinity, flavor spot doesn't match node affinity" in said


def test_a_selector_says_nothing_about_flavors_without_its_key() -> None:
    wish = pod_set(cpu=2)
    wish["template"]["spec"]["nodeSelector"] = {"kind": "fast"}
    plain = flavor("plain", {"zone": "a"})
    both = group(("plain", [quota("cpu", 2)]), ("fast", [quota("cpu", 2)]))
    world = World(plain, FLAVORS[1], queue("team", both), local(), workload("a", wish), workload("b", wish, at=1))
    assert world.settle() == ["a", "b"]
    assert [next(iter(world.book.items["default", name].held)) for name in "ab"] == [("plain", "cpu"), ("fast", "cpu")]


def test_of_several_flavors_the_easiest_reason_is_told() -> None:
    """As Kueue weighs them: waiting, then too big, then no match."""
    wish = pod_set(cpu=3)
    wish["template"]["spec"]["nodeSelector"] = {"kind": "fast"}
    assert waits(World(*FLAVORS, queue("team", TWO), local(), workload("a", wish)))["a"][0] == messages.TOO_BIG


def test_every_pod_set_that_waits_is_named() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    world = World(flavor(), queue(cpu=4, preemption=policy), local(), workload("a", cpu=3, priority=5))
    world.settle()
    world.put(workload("b", pod_set("x", cpu=2), pod_set("y", cpu=1), at=1))
    assert waits(world)["b"][1] == (
        "couldn't assign flavors to pod set x: insufficient unused quota for cpu in flavor default, 1 more needed; "
        "couldn't assign flavors to pod set y: insufficient unused quota for cpu in flavor default, 2 more needed"
    )


def test_what_no_quota_covers_has_no_flavor() -> None:
    reason, said = waits(World(flavor(), queue(), local(), workload("a", pod_set(cpu=1, gpu=1))))["a"]
    assert reason == messages.NO_FLAVOR
    assert said.endswith("resource nvidia.com/gpu unavailable in ClusterQueue")


def test_a_taint_must_be_tolerated() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    tainted = flavor(nodeTaints=[taint])
    plain, tolerant = pod_set(cpu=1), pod_set(cpu=1)
    tolerant["template"]["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    world = World(tainted, queue(), local(), workload("a", plain), workload("b", tolerant))
    said = waits(world)
    assert world.holding() == {"b"}
    assert said["a"][1].endswith("untolerated taint {gpu yes NoSchedule <nil>} in flavor default")


def test_a_resource_without_quota_is_named() -> None:
    world = World(flavor(), queue(), local(), workload("a", pod_set(cpu=1, gpu=1)))
    assert waits(world)["a"][1].endswith("resource nvidia.com/gpu unavailable in ClusterQueue")


COHORT = {
    "without limits": ({}, {}, 8),
    "with a borrowing limit": ({"borrowingLimit": 2}, {}, 6),
    "with a lending limit": ({}, {"lendingLimit": 1}, 5),
}


@pytest.mark.parametrize(("borrower", "lender", "most"), COHORT.values(), ids=COHORT)
def test_a_queue_borrows_what_others_lend(borrower: dict[str, int], lender: dict[str, int], most: int) -> None:
    queues = [queue("team", cohort="all", **borrower), queue("other", cohort="all", **lender)]
    world = World(flavor(), *queues, local(), *(workload(f"w{index}", at=index) for index in range(10)))
    world.settle()
    assert len(world.holding()) == most


def test_what_is_lent_is_reclaimed() -> None:
    policy = {"reclaimWithinCohort": "Any"}
    queues = [queue("team", cohort="all"), queue("other", cohort="all", preemption=policy)]
    world = World(flavor(), *queues, local(), local("o", "other"), *(workload(f"w{i}", at=i) for i in range(8)))
    assert len(world.settle()) == 8
    world.put(workload("mine", queue="o", at=20, cpu=2))
    [decision] = [one for one in world.round() if isinstance(one, Preempt)]
    assert {target.reason for target in decision.targets} == {messages.IN_COHORT}
    assert len(decision.targets) == 2
    for target in decision.targets:
        world.give_back(target.item.key[1])
    assert "mine" in world.settle()


def test_the_least_important_and_newest_is_preempted() -> None:
    world = World(
        flavor(),
        queue(preemption={"withinClusterQueue": "LowerPriority"}),
        local(),
        workload("low", priority=1, cpu=2),
        workload("middle", priority=2, cpu=2),
    )
    world.settle()
    world.put(workload("high", priority=9, at=5, cpu=2))
    [decision] = [one for one in world.round() if isinstance(one, Preempt)]
    assert [target.item.key[1] for target in decision.targets] == ["low"]
    # Until its pods are gone nobody gets its quota, and it is not told twice.
    world.put(workload("later", at=9, cpu=2))
    assert not any(isinstance(one, Admit | Preempt) for one in world.round())
    world.give_back("low")
    assert world.settle() == ["high"]


def test_a_workload_takes_fewer_pods_when_it_may() -> None:
    world = World(flavor(), queue(cpu=4), local(), workload("a", pod_set(count=8, least=2, cpu=1)))
    assert world.settle() == ["a"]
    assert world.objects["a"]["status"]["admission"]["podSetAssignments"][0]["count"] == 4


def test_a_workload_is_taken_when_its_least_size_fits_again() -> None:
    jobs = [workload("a", cpu=4), workload("b", pod_set(count=8, least=2, cpu=1), at=1)]
    world = World(flavor(), queue(cpu=4), local(), *jobs)
    assert world.settle() == ["a"]
    world.finish("a")
    assert world.settle() == ["b"]


def test_pods_that_ended_give_their_quota_back() -> None:
    world = World(flavor(), queue(cpu=4), local(), workload("a", pod_set(count=4, cpu=1)), workload("b", at=1, cpu=2))
    assert world.settle() == ["a"]
    obj = world.objects["a"]
    obj["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    obj["metadata"]["resourceVersion"] = "999999999"
    world.put(obj)
    assert world.settle() == ["b"]


OUTSIDE = {
    "an unknown queue": (
        workload("a", queue="nope"),
        "LocalQueue nope doesn't exist; queues of this namespace: held, q",
    ),
    "a stopped queue": (workload("a", queue="held"), "LocalQueue held is stopped"),
    "a workload on hold": (workload("a", active=False), "The workload is deactivated"),
}


@pytest.mark.parametrize(("obj", "said"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_no_queue_takes_is_told_why(obj: dict[str, object], said: str) -> None:
    world = World(flavor(), queue(), local(), local("held", stopPolicy="Hold"), obj)
    assert world.settle() == []
    assert world.book.outside["default", "a"][1] == said


def test_where_there_is_no_queue_the_fix_is_to_create_one() -> None:
    world = World(flavor(), queue(), workload("a", queue="nope"))
    assert world.settle() == []
    said = "LocalQueue nope doesn't exist; this namespace has no queue yet: create one that leads to a ClusterQueue"
    assert world.book.outside["default", "a"][1] == said


def test_a_missing_flavor_makes_a_queue_inactive() -> None:
    world = World(queue(), local(), workload("a"))
    assert world.settle() == []
    assert world.book.outside["default", "a"][1] == (
        "ClusterQueue team is inactive: Can't admit new workloads: references missing ResourceFlavor(s): default."
        " Create it, or use one that `kubectl get resourceflavors` lists"
    )
    world.put(flavor())
    assert world.settle() == ["a"]


def test_a_cycle_of_cohorts_stops_its_queues_and_no_other() -> None:
    cohorts = [
        {"metadata": {"name": name}, "spec": {"parentName": parent}}
        for name, parent in (("a", "b"), ("b", "c"), ("c", "a"))
    ]
    world = World(flavor(), *cohorts, queue("team", cohort="a"), queue("free"), local(), local("f", "free"))
    world.put(workload("stuck"), workload("fine", queue="f"))
    assert world.settle() == ["fine"]
    assert "the cohorts a -> b -> c -> a form a cycle" in world.book.outside["default", "stuck"][1]


def test_a_shared_quota_of_the_cohort_itself_is_used() -> None:
    shared = {
        "metadata": {"name": "all"},
        "spec": {"parentName": "", "resourceGroups": [group(("default", [quota("cpu", 3)]))]},
    }
    world = World(flavor(), shared, queue(cpu=1, cohort="all"), local(), *(workload(f"w{i}", at=i) for i in range(9)))
    assert len(world.settle()) == 4


def test_a_pod_set_pushed_to_another_flavor_does_not_keep_the_rest_out_for_ever() -> None:
    flavors = group(("one", [quota("cpu", 1)]), ("two", [quota("cpu", 6)]))
    large = workload("large", pod_set("a", cpu="500m"), pod_set("b", count=3, cpu=2), at=1)
    world = World(flavor("one"), flavor("two"), queue("team", flavors), local(), workload("small", cpu=1), large)
    assert world.settle() == ["small"]
    world.finish("small")
    assert world.settle() == ["large"]


def test_a_workload_preempts_for_fewer_pods_when_it_cannot_for_all() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    world = World(flavor(), queue(cpu=6, preemption=policy), local())
    world.put(workload("weak", cpu=3), workload("strong", cpu=3, priority=9))
    world.settle()
    world.put(workload("a", pod_set(count=6, least=2, cpu=1), priority=5))
    assert world.settle() == ["a"]
    assert world.holding() == {"a", "strong"}
    assert world.objects["a"]["status"]["admission"]["podSetAssignments"][0]["count"] == 3
