"""The figures of queues give way to who is being admitted, and to nobody else."""

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


def shown(client: Client, reserving: int) -> Callable[[], Awaitable[bool]]:
    async def is_shown() -> bool:
        queue = await client.get(CLUSTER_QUEUES, "team")
        return bool((queue.get("status") or {}).get("reservingWorkloads") == reserving)

    return is_shown


async def test_a_rest_however_long_ends_when_nobody_is_being_admitted_any_more(
    store: QueueStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PAUSE_FACTOR", "_MAX_PAUSE"):
        monkeypatch.setattr(queue_status, name, 1e9)
    is_busy = [True]
    monkeypatch.setattr(store, "is_busy", lambda: is_busy[0])
    store.state.refresh()
    running = asyncio.create_task(QueueStatusController(store, QueueMetrics()).run())
    store.notify()
    await first_answer(shown(client, 0), "the figures of before")
    schedule(store.state, store.now())
    store.notify()
    is_busy[0] = False
    await first_answer(shown(client, 1), "the figures of now")
    running.cancel()
