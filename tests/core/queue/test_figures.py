"""The figures in the statuses of queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import World, flavor, local, queue, workload

from torchyard.core.queue.queue_status import cluster_queue_status, local_queue_status


def pending(world: World) -> tuple[int, int]:
    """In the ClusterQueue, and in the LocalQueue that leads to it."""
    inside = cluster_queue_status(world.book.pools["team"], "")
    return inside["pendingWorkloads"], local_queue_status(("default", "q"), world.book, "")["pendingWorkloads"]


SHUT: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[int, int]]] = {
    "an open queue": ([flavor()], queue(cpu=1), (1, 1)),
    "a stopped queue": ([flavor()], queue(stopPolicy="Hold"), (2, 2)),
    "a queue without its flavor": ([], queue(), (2, 2)),
    "a queue that takes nobody": ([flavor()], queue(namespaceSelector=None), (0, 0)),
}


@pytest.mark.parametrize(("flavors", "team", "waiting"), SHUT.values(), ids=SHUT)
def test_who_waits_for_the_queue_itself_is_counted_as_waiting(
    flavors: list[dict[str, Any]], team: dict[str, Any], waiting: tuple[int, int]
) -> None:
    world = World(*flavors, team, local(), workload("a"), workload("b", at=1), workload("held", active=False))
    world.settle()
    assert pending(world) == waiting


def test_nobody_is_counted_twice_when_a_queue_opens_and_shuts() -> None:
    world = World(flavor(), queue(cpu=1, stopPolicy="Hold"), local(), *(workload(name) for name in "abc"))
    assert world.settle() == []
    world.put(queue(cpu=1))
    assert (world.settle(), pending(world)) == (["a"], (2, 2))
    world.put(queue(cpu=1, stopPolicy="Hold"))
    world.settle()
    assert pending(world) == (2, 2)
    world.finish("b")
    world.settle()
    assert pending(world) == (1, 1)
    world.put(local(stopPolicy="Hold"))
    world.settle()
    assert pending(world) == (0, 0)
