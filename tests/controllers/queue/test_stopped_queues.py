"""Queues that are stopped and resumed: only the workloads with quota of a stopped queue are reconciled."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.waiting import first_answer

from torchyard.api.group_version import GroupVersionResource
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, LOCAL_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.workloads import WorkloadReconciler
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.settings import QueueSettings
from torchyard.kube.client import Client

QUEUES = {"a cluster queue": (CLUSTER_QUEUES, "team", ""), "a local queue": (LOCAL_QUEUES, "q", "default")}


async def stop(client: Client, store: QueueStore, queue: tuple[GroupVersionResource, str, str], policy: str) -> None:
    """Set the stop policy, and wait until the informer has seen it."""
    gvr, name, namespace = queue
    informer = store.cluster_queues if gvr is CLUSTER_QUEUES else store.local_queues
    written = await client.patch(gvr, name, {"spec": {"stopPolicy": policy}}, namespace)

    async def seen() -> bool:
        return informer.has_seen(written)

    await first_answer(seen, f"{name} with {policy}")


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
async def test_stopped_queue_reconciles_its_reserving_workloads_only(
    queue: Any, store: QueueStore, client: Client
) -> None:
    controller = WorkloadReconciler(store, store.new_recorder("test"), QueueMetrics(), QueueSettings())
    await stop(client, store, queue, "Hold")
    assert controller.queue.adds == 0  # no workload has quota
    await stop(client, store, queue, "None")
    schedule(store.state, store.now())
    assert store.state.cache.workloads["default", "one"].reserved_in == "team"
    assert controller.queue.adds == 0
    await stop(client, store, queue, "HoldAndDrain")
    assert controller.queue.adds == 1
    await stop(client, store, queue, "None")
    assert controller.queue.adds == 1
