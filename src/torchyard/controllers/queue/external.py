"""PyTorchJobs on a cluster whose Kueue leaves them to an external integration: creates and follows their workloads.

Kueue admits, evicts and counts. `core.queue.kueue_detection` says when this is needed. For a Kueue that serves only
v1beta1, create the client with `kueue_v1beta1.KueueV1Beta1Transport` around its transport.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.controllers.queue.gvr import PYTORCHJOBS
from torchyard.controllers.queue.jobs import JobReconciler
from torchyard.controllers.queue.stores import WorkloadStore
from torchyard.core.queue.integrations import PyTorchJobIntegration
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts


class ExternalIntegration:
    """`run` until cancelled. The caller runs the informers."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        store = WorkloadStore(client, informers, clock)
        self._jobs = JobReconciler(store, informers, PyTorchJobIntegration(), PYTORCHJOBS)

    async def run(self) -> None:
        await run_parts(recorder=self._jobs.recorder.run, jobs=self._jobs.run)
