"""Queues that stop and open: only those are looked at again who hold what a queue that stops gave."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.waiting import first_answer

from torchyard.api.group_version import GroupVersionResource
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, LOCAL_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.workloads import WorkloadReconciler
from torchyard.core.queue.lifecycle import QueueSettings
from torchyard.core.queue.scheduler import schedule
from torchyard.kube.client import Client

QUEUES = {"a cluster queue": (CLUSTER_QUEUES, "team", ""), "a local queue": (LOCAL_QUEUES, "q", "default")}


async def stop(client: Client, store: QueueStore, queue: tuple[GroupVersionResource, str, str], policy: str) -> None:
    """Until those who look after workloads know."""
    ref, name, namespace = queue
    informer = store.cluster_queues if ref is CLUSTER_QUEUES else store.local_queues
    written = await client.patch(ref, name, {"spec": {"stopPolicy": policy}}, namespace)

    async def seen() -> bool:
        return informer.has_seen(written)

    await first_answer(seen, f"{name} being told {policy}")


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
async def test_nobody_is_looked_at_when_a_queue_opens_and_its_holders_are_when_it_stops(
    queue: Any, store: QueueStore, client: Client
) -> None:
    controller = WorkloadReconciler(store, store.new_recorder("test"), QueueMetrics(), QueueSettings())
    await stop(client, store, queue, "Hold")
    assert controller.queue.adds == 0  # nobody holds anything
    await stop(client, store, queue, "None")
    schedule(store.state, store.now())
    assert store.state.cache.workloads["default", "one"].reserved_in == "team"
    assert controller.queue.adds == 0
    await stop(client, store, queue, "HoldAndDrain")
    assert controller.queue.adds == 1
    await stop(client, store, queue, "None")
    assert controller.queue.adds == 1
