"""On a cluster whose Kueue leaves PyTorchJobs to us: their workloads, and the jobs started and stopped as those say.

Kueue admits, evicts and counts; nothing here does. `core.queue.presence` tells when this is the way. Of a Kueue that
serves only the older version, make the client with `older.OlderKueue` around its transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.controllers.queue.jobs import JobController
from torchyard.controllers.queue.refs import PYTORCHJOBS
from torchyard.controllers.queue.stores import Workloads
from torchyard.core.queue.integrations import PyTorchJob
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory


class ExternalIntegration:
    """`run` until cancelled; the informers are run by whoever made them."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._jobs = JobController(Workloads(client, informers, clock), informers, PyTorchJob(), PYTORCHJOBS)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.recorder.run())
            group.create_task(self._jobs.run())
