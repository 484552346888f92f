"""The counts in the statuses of queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.api.queue import messages
from torchyard.core.queue.queue_status import cluster_queue_status, local_queue_status


def pending(sim: QueueSimulation) -> tuple[int, int]:
    """In the ClusterQueue, and in its LocalQueue."""
    status = cluster_queue_status(sim.state.cache.cluster_queues["team"], "")
    return status["pendingWorkloads"], local_queue_status(("default", "q"), sim.state, "")["pendingWorkloads"]


STATUSES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[int, int]]] = {
    "active queue": ([flavor()], queue(cpu=1), (1, 1)),
    "stopped queue": ([flavor()], queue(stopPolicy="Hold"), (2, 2)),
    "missing flavor": ([], queue(), (2, 2)),
    "no namespace selected": ([flavor()], queue(namespaceSelector=None), (2, 2)),
}


@pytest.mark.parametrize(("flavors", "team", "expected"), STATUSES.values(), ids=STATUSES)
def test_pending_count_includes_workloads_of_inactive_cluster_queues(
    flavors: list[dict[str, Any]], team: dict[str, Any], expected: tuple[int, int]
) -> None:
    sim = QueueSimulation(*flavors, team, local(), workload("a"), workload("b", at=1), workload("held", active=False))
    sim.run_until_idle()
    assert pending(sim) == expected


def test_pending_count_is_exact_when_a_queue_is_stopped_and_resumed() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=1, stopPolicy="Hold"), local(), *(workload(name) for name in "abc"))
    assert sim.run_until_idle() == []
    sim.put(queue(cpu=1))
    assert (sim.run_until_idle(), pending(sim)) == (["a"], (2, 2))
    sim.put(queue(cpu=1, stopPolicy="Hold"))
    sim.run_until_idle()
    assert pending(sim) == (2, 2)
    sim.finish("b")
    sim.run_until_idle()
    assert pending(sim) == (1, 1)
    sim.put(local(stopPolicy="Hold"))
    sim.run_until_idle()
    assert pending(sim) == (0, 0)


def test_change_of_a_workload_concerns_only_its_own_local_queue() -> None:
    """However many others its ClusterQueue has."""
    sim = QueueSimulation(flavor(), queue("team", cpu=4), *(local(f"q{n}", "team") for n in range(50)))
    sim.put(workload("first", queue="q3"))
    sim.run_until_idle()
    cache = sim.state.cache
    cache.changed_local_queues.clear()
    sim.put(workload("second", queue="q7"))
    assert cache.changed_local_queues == {("default", "q7")}
    sim.run_until_idle()
    cache.changed_local_queues.clear()
    sim.finish("first")
    assert cache.changed_local_queues == {("default", "q3")}


def test_status_of_a_local_queue_does_not_look_at_what_waits_or_has_finished() -> None:
    sim = QueueSimulation(flavor(), queue(cpu=2), local(), *(workload(name, at=at) for at, name in enumerate("abcd")))
    assert sim.run_until_idle() == ["a", "b"]
    reserving = sim.state.cache.by_local_queue.reserving
    assert [info.key[1] for info in reserving(("default", "q"))] == ["a", "b"]
    finished = {"type": messages.FINISHED, "status": "True"}
    metadata, status = sim.objects["a"]["metadata"], sim.objects["a"]["status"]
    sim.put(
        {
            **sim.objects["a"],
            "metadata": {**metadata, "resourceVersion": "999999"},
            "status": {**status, "conditions": [*status["conditions"], finished]},
        }
    )
    assert sim.run_until_idle() == ["c"]
    assert {info.key[1] for info in reserving(("default", "q"))} == {"b", "c"}
    sim.state.remove_workload(("default", "b"))
    assert sim.run_until_idle() == ["d"]
    assert {info.key[1] for info in reserving(("default", "q"))} == {"c", "d"}
