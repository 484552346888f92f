"""What many workloads have is kept once: the book of a long day is mostly of those that ended."""

from __future__ import annotations

from tests.support.queues import World, flavor, local, queue, workload

from torchyard.api.objects import Object
from torchyard.api.queue import messages

ENDED = {
    "type": messages.FINISHED,
    "status": "True",
    "reason": "Succeeded",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:09Z",
}


def ended(world: World, name: str) -> Object:
    obj = world.objects[name]
    status = {**obj["status"], "conditions": [*(dict(one) for one in obj["status"]["conditions"]), dict(ENDED)]}
    revision = str(int(obj["metadata"]["resourceVersion"]) + 1000)
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": revision}, "status": status}


def test_workloads_that_ended_alike_share_what_they_were_given_and_when() -> None:
    world = World(flavor(), queue(), local(), workload("a"), workload("b"))
    world.settle()
    expected = ended(world, "a")["status"]
    world.put(ended(world, "a"), ended(world, "b"))
    one, two = (world.objects[name]["status"] for name in "ab")
    assert one == two == expected
    assert one["admission"] is two["admission"]
    assert all(mine is its for mine, its in zip(one["conditions"], two["conditions"], strict=True))
    assert one["conditions"] is not two["conditions"]


def test_one_that_ended_without_quota_stays_as_it_is() -> None:
    world = World(flavor(), queue(), local())
    obj = {**workload("a"), "status": {"conditions": [dict(ENDED)]}}
    world.put(obj)
    assert world.objects["a"]["status"] == {"conditions": [ENDED]}
