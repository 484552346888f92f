"""Statuses of queues are delayed while workloads are admitted, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.waiting import first_answer

from torchyard.controllers.queue import queue_status
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.queue_status import QueueStatusController
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.scheduler import schedule
from torchyard.kube.client import Client


def has_reserving(client: Client, reserving: int) -> Callable[[], Awaitable[bool]]:
    async def is_written() -> bool:
        queue = await client.get(CLUSTER_QUEUES, "team")
        return bool((queue.get("status") or {}).get("reservingWorkloads") == reserving)

    return is_written


async def test_status_pause_ends_when_nothing_is_being_admitted(
    store: QueueStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PAUSE_FACTOR", "_MAX_PAUSE"):
        monkeypatch.setattr(queue_status, name, 1e9)
    is_busy = [True]
    monkeypatch.setattr(store, "is_busy", lambda: is_busy[0])
    store.state.refresh()
    running = asyncio.create_task(QueueStatusController(store, QueueMetrics()).run())
    store.notify()
    await first_answer(has_reserving(client, 0), "the status before the admission")
    schedule(store.state, store.now())
    store.notify()
    is_busy[0] = False
    await first_answer(has_reserving(client, 1), "the status after the admission")
    running.cancel()
