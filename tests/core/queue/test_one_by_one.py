"""blockAdmission: nobody is admitted before the pods of all who were are ready."""

from __future__ import annotations

from tests.support.queues import World, flavor, local, queue, workload

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.scheduler import Admit, Preempt, Wait
from torchyard.core.queue.state import Book


def world_of(*objects: Object) -> World:
    world = World()
    world.book = Book(lambda _namespace: {}, one_by_one=True)
    world.put(flavor(), *objects)
    return world


def becomes_ready(world: World, name: str) -> None:
    obj = world.objects[name]
    metadata = {**obj["metadata"], "resourceVersion": str(int(obj["metadata"]["resourceVersion"]) + 10**6)}
    ready = {"type": messages.PODS_READY, "status": "True", "reason": messages.STARTED, "message": ""}
    conditions = [*obj["status"]["conditions"], {**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    world.put({**obj, "metadata": metadata, "status": {**obj["status"], "conditions": conditions}})


def test_the_next_is_admitted_when_the_one_before_is_ready() -> None:
    world = world_of(queue(cpu=4), local(), *(workload(name, at=at) for at, name in enumerate("abc")))
    assert world.settle() == ["a"]
    becomes_ready(world, "a")
    assert world.settle() == ["b"]
    world.finish("b")
    assert world.settle() == ["c"], "who has ended is waited for no more"


def test_who_waits_is_told_for_what() -> None:
    world = world_of(queue(cpu=4), local(), workload("a"), workload("b", at=1))
    said = [
        (one.item.key[1], one.reason, one.message) for one in (*world.round(), *world.round()) if isinstance(one, Wait)
    ]
    assert said[0] == (
        "b",
        "WaitingForPodsReady",
        "waiting for all admitted workloads to be in PodsReady condition",
    )


def test_all_queues_wait_for_one() -> None:
    queues = [queue("team"), local("q", "team"), queue("other"), local("o", "other")]
    world = world_of(*queues, workload("a"), workload("b", queue="o", at=1))
    assert world.settle() == ["a"]
    becomes_ready(world, "a")
    assert world.settle() == ["b"]


def test_a_pod_that_is_lost_blocks_again() -> None:
    world = world_of(queue(), local(), workload("a"))
    world.settle()
    becomes_ready(world, "a")
    ready = world.objects["a"]
    metadata = {**ready["metadata"], "resourceVersion": str(int(ready["metadata"]["resourceVersion"]) + 1)}
    lost = [
        {**one, "status": "False"} if one["type"] == messages.PODS_READY else one
        for one in ready["status"]["conditions"]
    ]
    world.put({**ready, "metadata": metadata, "status": {**ready["status"], "conditions": lost}})
    world.put(workload("b"))
    assert world.settle() == []


def test_preemption_does_not_wait() -> None:
    strong = queue(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    world = world_of(strong, local(), workload("low", cpu=2))
    assert world.settle() == ["low"]
    world.put(workload("high", cpu=2, priority=5))
    assert any(isinstance(one, Preempt) for one in world.round())
    world.give_back("low")
    assert world.settle() == ["high"]


def test_without_it_all_are_admitted_at_once() -> None:
    world = World(flavor(), queue(cpu=4), local(), *(workload(name) for name in "abc"))
    assert sum(isinstance(one, Admit) for _ in range(3) for one in world.round()) == 3
