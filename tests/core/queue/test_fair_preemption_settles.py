"""With fair sharing, the scheduler has nothing to do while it waits until evicted workloads are gone."""

from __future__ import annotations

import random

import pytest
from bench.queue import backlog

from torchyard.core.queue.decisions import Admit, SchedulingDecision
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.state import QueueState

MAX_CYCLES = 40


def settle(state: QueueState) -> list[SchedulingDecision]:
    decisions: list[SchedulingDecision] = []
    for _ in range(MAX_CYCLES):
        decisions += schedule(state, 0.0)
        if not state.pending.active:
            return decisions
    raise AssertionError(f"ClusterQueues are still active after {MAX_CYCLES} cycles: {list(state.pending.active)}")


@pytest.mark.parametrize(("cluster_queues", "seed"), [(12, 2), (20, 1)])
def test_preemptors_that_wait_for_the_same_workloads_do_not_displace_each_other_without_end(
    cluster_queues: int, seed: int
) -> None:
    state = backlog.build(
        cluster_queues, 6 * cluster_queues, random.Random(seed), is_fair=True, preemption={"reclaimWithinCohort": "Any"}
    )
    settle(state)
    reserving = [info for cq in state.cache.cluster_queues.values() for info in cq.reserving.values()]
    evicted = [info.key for info in reserving if info.is_evicted]
    assert evicted
    for key in evicted:
        state.remove_workload(key)
    assert any(isinstance(decision, Admit) for decision in settle(state))
