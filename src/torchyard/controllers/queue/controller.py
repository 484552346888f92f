"""All controllers of the queues, assembled and run together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS
from torchyard.api.queue import messages
from torchyard.controllers.queue.admission_fair_sharing import LocalQueueUsageController
from torchyard.controllers.queue.finalizers import FinalizerController
from torchyard.controllers.queue.gvr import JOBSETS, PYTORCHJOBS, TRAINJOBS
from torchyard.controllers.queue.ignored_fields import IgnoredFieldReporter
from torchyard.controllers.queue.jobs import JobReconciler
from torchyard.controllers.queue.local_queues import LocalQueueProvisioner
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.pod_groups import PodGroupReconciler
from torchyard.controllers.queue.priorities import PriorityClassFollower
from torchyard.controllers.queue.queue_status import QueueStatusController
from torchyard.controllers.queue.runtime_snapshots import RuntimeSnapshots
from torchyard.controllers.queue.scheduler import SchedulerController
from torchyard.controllers.queue.slices import SliceReconciler
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.workloads import WorkloadReconciler
from torchyard.core.queue.integrations import BatchJobIntegration, JobIntegration, PyTorchJobIntegration
from torchyard.core.queue.jobset_integration import JobSetIntegration
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.trainjob_integration import TrainJobIntegration
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import Part, run_parts


class QueueController:
    """`run` until cancelled.

    `pytorchjobs`, `jobsets`, `trainjobs`: whether these kinds are served here.
    `provision_local_queues`: see `local_queues`.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime],
        settings: QueueSettings | None = None,
        pytorchjobs: bool = True,
        jobsets: bool = False,
        trainjobs: bool = False,
        provision_local_queues: bool = False,
    ) -> None:
        settings = settings or QueueSettings()
        self.metrics = QueueMetrics()
        store = QueueStore(client, informers, clock, settings)
        scheduler_recorder = store.new_recorder(messages.COMPONENT_SCHEDULER)
        workload_recorder = store.new_recorder(messages.COMPONENT_WORKLOADS)
        integrations: list[tuple[JobIntegration, GroupVersionResource]] = [(BatchJobIntegration(), JOBS)]
        if pytorchjobs:
            integrations.append((PyTorchJobIntegration(), PYTORCHJOBS))
        if jobsets:
            integrations.append((JobSetIntegration(), JOBSETS))
        reads: dict[str, list[Informer]] = {}
        if trainjobs:
            snapshots = RuntimeSnapshots(informers)
            integrations.append((TrainJobIntegration(snapshots.find), TRAINJOBS))
            reads[TRAINJOBS.plural] = [snapshots.informer]
        jobs = [
            JobReconciler(
                store,
                informers,
                integration,
                gvr,
                reads=reads.get(gvr.plural, ()),
                workload_created=self.metrics.workload_created,
            )
            for integration, gvr in integrations
        ]
        pod_groups = PodGroupReconciler(store, informers)
        self._parts: dict[str, Part] = {
            "scheduler": SchedulerController(store, scheduler_recorder, self.metrics).run,
            "scheduler-events": scheduler_recorder.run,
            "workloads": WorkloadReconciler(store, workload_recorder, self.metrics, settings).run,
            "workload-events": workload_recorder.run,
            "pod-groups": pod_groups.run,
            "pod-group-events": pod_groups.recorder.run,
            "priority-classes": PriorityClassFollower(store, informers).run,
            "finalizers": FinalizerController(store).run,
            "queue-status": QueueStatusController(store, self.metrics).run,
            "queue-events": IgnoredFieldReporter(store, settings).recorder.run,
            "slices": SliceReconciler(store, informers, jobs[0].recorder).run,
        }
        for (_, gvr), job in zip(integrations, jobs, strict=True):
            self._parts |= {gvr.plural: job.run, f"{gvr.plural}-events": job.recorder.run}
        if settings.admission_fair_sharing is not None:
            self._parts["local-queue-usage"] = LocalQueueUsageController(store, self.metrics).run
        if provision_local_queues:
            provisioner = LocalQueueProvisioner(store, informers)
            self._parts |= {"local-queues": provisioner.run, "local-queue-events": provisioner.recorder.run}

    async def run(self) -> None:
        await run_parts(**self._parts)
