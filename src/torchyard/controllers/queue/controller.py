"""Everything about queues in one part of the plane: built together, run together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS
from torchyard.api.queue import messages
from torchyard.controllers.queue.jobs import JobController
from torchyard.controllers.queue.local_queues import LocalQueues
from torchyard.controllers.queue.metrics import Metrics
from torchyard.controllers.queue.pod_groups import PodController
from torchyard.controllers.queue.queue_status import Figures
from torchyard.controllers.queue.refs import PYTORCHJOBS
from torchyard.controllers.queue.scheduler import Admission
from torchyard.controllers.queue.slices import SliceController
from torchyard.controllers.queue.stores import State
from torchyard.controllers.queue.workloads import WorkloadController
from torchyard.core.queue.integrations import Adapter, BatchJob, PyTorchJob
from torchyard.core.queue.lifecycle import QueueSettings
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory


class _Part(Protocol):
    async def run(self) -> None: ...


class QueueController:
    """`run` until cancelled. `pytorchjobs`: whether that kind is served here; `conveniences`: see `local`."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime],
        settings: QueueSettings | None = None,
        pytorchjobs: bool = True,
        conveniences: bool = False,
    ) -> None:
        settings = settings or QueueSettings()
        self.state = State(client, informers, clock, one_by_one=settings.pods_ready and settings.block_admission)
        self.metrics = Metrics()
        told, kept = self.state.recorder(messages.SCHEDULER), self.state.recorder(messages.WORKLOADS)
        kinds: list[tuple[Adapter, GroupVersionResource]] = [(BatchJob(), JOBS)]
        if pytorchjobs:
            kinds.append((PyTorchJob(), PYTORCHJOBS))
        self._jobs = [
            JobController(self.state, informers, adapter, ref, composed=self.metrics.composed) for adapter, ref in kinds
        ]
        self._pods = PodController(self.state, informers)
        self._parts: list[_Part] = [
            self._pods,
            Admission(self.state, told, self.metrics),
            WorkloadController(self.state, kept, self.metrics, settings),
            Figures(self.state, self.metrics),
            *self._jobs,
            SliceController(self.state, informers, self._jobs[0].recorder),
        ]
        self._local = [LocalQueues(self.state, informers)] if conveniences else []
        self._parts += self._local
        self._recorders = [
            told,
            kept,
            self._pods.recorder,
            *(one.recorder for one in self._jobs),
            *(one.recorder for one in self._local),
        ]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in (*self._recorders, *self._parts):
                group.create_task(part.run())
