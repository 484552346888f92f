"""The controllers of this plane and how each is built. The names are kube-controller-manager's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.apiserver.registry.catalog import Catalog
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.controllers.autoscaler import AutoscalerController
from torchyard.controllers.certificate_requests import (
    CertificateApprover,
    CertificateRequestCleaner,
    CertificateSigner,
    IssueCertificate,
)
from torchyard.controllers.cronjob import CronJobController
from torchyard.controllers.endpoints import EndpointsController
from torchyard.controllers.endpointslice_mirroring import EndpointSliceMirroringController
from torchyard.controllers.endpointslices import EndpointSliceController
from torchyard.controllers.ephemeral_volumes import EphemeralVolumeController
from torchyard.controllers.garbage_collector import GarbageCollector
from torchyard.controllers.job import JobController
from torchyard.controllers.job_history import JobHistoryController
from torchyard.controllers.job_metrics import JobStateMetrics
from torchyard.controllers.job_traces import JobTraceExporter
from torchyard.controllers.jobset import JOBSETS, JobSetController
from torchyard.controllers.local_provisioner import LocalVolumeProvisioner
from torchyard.controllers.namespace_objects import default_service_account, root_ca_publisher
from torchyard.controllers.namespaces import NamespaceController
from torchyard.controllers.node_lifecycle import NodeLifecycleController
from torchyard.controllers.operator_pod import OperatorPodController
from torchyard.controllers.otlp import OtlpSettings
from torchyard.controllers.pod_eviction import PodGarbageCollector, TaintEvictionController
from torchyard.controllers.progress import ProgressController
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.controllers.pytorchjob import PyTorchJobController
from torchyard.controllers.quotas import QuotaController
from torchyard.controllers.role_aggregation import RoleAggregationController
from torchyard.controllers.scheduler import Scheduler
from torchyard.controllers.service_cidr import ServiceCIDRController
from torchyard.controllers.token_secrets import TokenSecretController
from torchyard.controllers.trainjob import TRAINJOBS, TrainJobController
from torchyard.controllers.trainjob_runtimes import create_runtimes
from torchyard.controllers.ttl_after_finished import TTLAfterFinishedController
from torchyard.controllers.volume_binder import VolumeBinder
from torchyard.controllers.volume_protection import claim_protection, volume_protection
from torchyard.controllers.workload.daemonset import DaemonSetController
from torchyard.controllers.workload.deployment import DeploymentController
from torchyard.controllers.workload.disruption import DisruptionController
from torchyard.controllers.workload.replicaset import ReplicaSetController
from torchyard.controllers.workload.statefulset import StatefulSetController
from torchyard.core.pytorchjob.view import EMBEDDED_GANG, PyTorchJobSettings
from torchyard.core.queue.kueue_configuration import load_queue_settings
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.trainjob.status_server import plane_status_server
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import Part
from torchyard.yard.history import HistoryStore
from torchyard.yard.selection import LOCAL_QUEUES, SCHEDULER
from torchyard.yard.settings import PlaneSettings

# After so many objects, other tasks of the event loop run.
_YIELD_INTERVAL = 200


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a controller is built from."""

    client: Client
    informers: InformerFactory
    recorder: EventRecorder
    registry: Registry
    authority: str
    sign: Callable[[dict[str, Any], str], str]  # the token of an account, for a secret of this name
    issue: IssueCertificate
    settings: PlaneSettings


def _namespaces(deps: Dependencies) -> Part:
    resources = partial(_namespaced, deps.registry.catalog)
    return NamespaceController(deps.client, deps.informers, resources, deps.registry.clock).run


def _quotas(deps: Dependencies) -> Part:
    quotas = QuotaController(deps.client, deps.informers, partial(_served, deps.registry.catalog), deps.registry.clock)
    deps.registry.store.listen("", partial(_report_to_quotas, quotas))
    return quotas.run


def _garbage(deps: Dependencies) -> Part:
    collector = GarbageCollector(deps.client, partial(_resource_of, deps.registry.catalog), deps.recorder)
    store = deps.registry.store
    store.listen("", partial(_report_change, collector))

    async def run() -> None:
        # It must know all dependents of an owner before it decides about the owner.
        await _report_present(store, collector)
        await collector.run()

    return run


def _pytorchjobs(deps: Dependencies) -> Part:
    # On one machine the master is reachable soon, so short retries are cheap.
    settings = PyTorchJobSettings(gang_scheduler=EMBEDDED_GANG, init_tries=1000, init_pause_seconds=0.2)
    return PyTorchJobController(deps.client, deps.informers, settings, clock=deps.registry.clock).run


def _jobsets(deps: Dependencies) -> Part:
    jobsets = JobSetController(deps.client, deps.informers, clock=deps.registry.clock)
    deps.registry.metrics_sources.append(jobsets.metrics.text)
    return jobsets.run


def _trainjobs(deps: Dependencies) -> Part:
    controller = TrainJobController(
        deps.client, deps.informers, clock=deps.registry.clock, status_server=plane_status_server()
    )

    async def run() -> None:
        await create_runtimes(deps.client)
        await controller.run()

    return run


def load_queue_config(file: Path | None) -> QueueSettings:
    """The settings of the queues from Kueue's Configuration; the defaults without a file."""
    if file is None:
        return QueueSettings()
    try:
        return load_queue_settings(file.read_text())
    except OSError as error:
        raise YardError(f"--queue-config {file}: {error.strerror}", code="BadOption") from None
    except YardError as error:
        raise YardError(f"--queue-config {file}: {error.message}", hint=error.hint, code="BadOption") from None


def _queues(deps: Dependencies) -> Part:
    from torchyard.controllers.queue.controller import QueueController  # loads prometheus_client

    queues = QueueController(
        deps.client,
        deps.informers,
        clock=deps.registry.clock,
        settings=load_queue_config(deps.settings.queue_config),
        pytorchjobs="pytorchjob" in deps.registry.controllers,
        jobsets="jobset" in deps.registry.controllers,
        trainjobs={"jobset", "trainjob"} <= deps.registry.controllers,
        provision_local_queues=LOCAL_QUEUES in deps.registry.controllers,
    )
    deps.registry.metrics_sources.append(queues.metrics.text)
    return queues.run


def _progress(deps: Dependencies) -> Part:
    jobsets = deps.informers.for_resource(JOBSETS) if "jobset" in deps.registry.controllers else None
    trainjobs = deps.informers.for_resource(TRAINJOBS) if "trainjob" in deps.registry.controllers else None
    controller = ProgressController(deps.client, jobsets, trainjobs)
    deps.registry.progress.subscribe(controller.observe)
    return controller.run


async def _clear(history: HistoryStore) -> None:
    await asyncio.to_thread(history.clear)
    await asyncio.Event().wait()


# By the controller without which nothing serves them.
_JOB_KINDS: dict[str, tuple[str, GroupVersionResource]] = {
    "pytorchjob": (pytorchjob.KIND, PYTORCHJOBS),
    "jobset": ("JobSet", JOBSETS),
    "trainjob": ("TrainJob", TRAINJOBS),
}


def _history(deps: Dependencies) -> Part:
    chosen = deps.registry.controllers
    kinds = {"Job": JOBS} | {kind: gvr for name, (kind, gvr) in _JOB_KINDS.items() if name in chosen}
    keep = timedelta(days=deps.settings.history_days)
    store = HistoryStore(deps.settings.history)
    if not keep:  # also what an earlier start with another number has kept
        return partial(_clear, store)
    return JobHistoryController(deps.informers, kinds, store, keep=keep, clock=deps.registry.clock).run


BUILDERS: dict[str, Callable[[Dependencies], Part]] = {
    CertificateApprover.name: lambda deps: CertificateApprover(deps.client, deps.informers).run,
    CertificateRequestCleaner.name: lambda deps: (
        CertificateRequestCleaner(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    CertificateSigner.name: lambda deps: (
        CertificateSigner(deps.client, deps.informers, issue=deps.issue, clock=deps.registry.clock).run
    ),
    "clusterrole-aggregation-controller": lambda deps: RoleAggregationController(deps.client, deps.informers).run,
    "cronjob-controller": lambda deps: CronJobController(deps.client, deps.informers, clock=deps.registry.clock).run,
    "daemonset-controller": lambda deps: (
        DaemonSetController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "deployment-controller": lambda deps: (
        DeploymentController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "disruption-controller": lambda deps: (
        DisruptionController(
            deps.client,
            deps.informers,
            resource=partial(_resource_of, deps.registry.catalog),
            clock=deps.registry.clock,
        ).run
    ),
    "endpoints-controller": lambda deps: EndpointsController(deps.client, deps.informers).run,
    "endpointslice-controller": lambda deps: EndpointSliceController(deps.client, deps.informers).run,
    "endpointslicemirroring-controller": lambda deps: EndpointSliceMirroringController(deps.client, deps.informers).run,
    "ephemeral-volume-controller": lambda deps: EphemeralVolumeController(deps.client, deps.informers).run,
    "garbage-collector-controller": _garbage,
    "horizontal-pod-autoscaler-controller": lambda deps: (
        AutoscalerController(
            deps.client, deps.informers, target=partial(_resource_of, deps.registry.catalog), clock=deps.registry.clock
        ).run
    ),
    "job-controller": lambda deps: JobController(deps.client, deps.informers, clock=deps.registry.clock).run,
    "jobset": _jobsets,
    "kueue": _queues,
    "local-volumes": lambda deps: (
        LocalVolumeProvisioner(
            deps.client, deps.informers, root=deps.settings.volumes, node=deps.settings.node_name
        ).run
    ),
    "namespace-controller": _namespaces,
    "node-lifecycle-controller": lambda deps: (
        NodeLifecycleController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "persistentvolume-binder-controller": lambda deps: (
        VolumeBinder(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "persistentvolume-protection-controller": lambda deps: volume_protection(deps.client, deps.informers).run,
    "persistentvolumeclaim-protection-controller": lambda deps: claim_protection(deps.client, deps.informers).run,
    "pod-garbage-collector-controller": lambda deps: (
        PodGarbageCollector(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "pytorchjob": _pytorchjobs,
    "replicaset-controller": lambda deps: (
        ReplicaSetController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "replicationcontroller-controller": lambda deps: (
        ReplicaSetController(deps.client, deps.informers, "ReplicationController", clock=deps.registry.clock).run
    ),
    "resourcequota-controller": _quotas,
    "root-ca-certificate-publisher-controller": lambda deps: (
        root_ca_publisher(deps.client, deps.informers, deps.authority).run
    ),
    SCHEDULER: lambda deps: Scheduler(deps.client, deps.informers, clock=deps.registry.clock).run,
    ServiceCIDRController.name: lambda deps: (
        ServiceCIDRController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "serviceaccount-token-controller": lambda deps: (
        TokenSecretController(deps.client, deps.informers, authority=deps.authority, sign=deps.sign).run
    ),
    "serviceaccount-controller": lambda deps: default_service_account(deps.client, deps.informers).run,
    "statefulset-controller": lambda deps: (
        StatefulSetController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "ttl-after-finished-controller": lambda deps: (
        TTLAfterFinishedController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "taint-eviction-controller": lambda deps: (
        TaintEvictionController(deps.client, deps.informers, clock=deps.registry.clock).run
    ),
    "trainjob": _trainjobs,
}
# Started together with another part; cannot be selected alone.
_ATTACHED: dict[str, dict[str, Callable[[Dependencies], Part]]] = {
    "job-controller": {"job-history": _history, "progress": _progress},
    "pytorchjob": {
        "operator-pod": lambda deps: OperatorPodController(deps.client, deps.informers, deps.registry.clock).run
    },
}


def controllers(
    client: Client,
    informers: InformerFactory,
    registry: Registry,
    settings: PlaneSettings,
    *,
    recorder: EventRecorder,
    authority: str,
    sign: Callable[[dict[str, Any], str], str],
    issue: IssueCertificate,
) -> Iterator[tuple[str, Part]]:
    """The parts that run the selected controllers, by name, and those that feed them."""
    deps = Dependencies(client, informers, recorder, registry, authority, sign, issue, settings)
    for name in sorted(registry.controllers):
        makers = {name: BUILDERS[name]} if name in BUILDERS else {}
        for part, make in (makers | _ATTACHED.get(name, {})).items():
            yield part, make(deps)
    caches = _job_caches(deps)
    registry.metrics_sources.append(JobStateMetrics(caches).text)
    otlp = OtlpSettings.from_environment(os.environ)
    if otlp is not None:
        traces = JobTraceExporter(client, otlp, clock=registry.clock)
        traces.follow(caches)
        registry.progress.subscribe(traces.observe)
        yield "job-traces", traces.run
    yield "events", deps.recorder.run
    # Last, because by now every controller has requested its informers.
    yield "informers", deps.informers.run


def _job_caches(deps: Dependencies) -> dict[str, list[Informer]]:
    """The caches of the jobs of this plane; their controllers have requested them too."""
    kinds = {"job-controller": ("Job", JOBS), **_JOB_KINDS}
    chosen = deps.registry.controllers
    return {
        kind: [deps.informers.for_resource(gvr)] for controller, (kind, gvr) in kinds.items() if controller in chosen
    }


def _resource_of(catalog: Catalog, api_version: str, kind: str) -> GroupVersionResource | None:
    group, _, version = api_version.rpartition("/")
    resource = catalog.kind(group, version, kind)
    return (
        GroupVersionResource(resource.group, resource.version, resource.plural, resource.namespaced)
        if resource
        else None
    )


def _served(catalog: Catalog, group: str, plural: str) -> GroupVersionResource | None:
    resource = next(
        (resource for resource in catalog.stored() if (resource.group, resource.plural) == (group, plural)), None
    )
    return (
        GroupVersionResource(resource.group, resource.version, resource.plural, resource.namespaced)
        if resource
        else None
    )


def _report_to_quotas(quotas: QuotaController, event: StoreEvent) -> None:
    """Report the resource and namespace of a change, which are in the key: `/jobs.batch/namespace/name`."""
    _, collection, namespace, _ = event.record.key.split("/", 3)
    if namespace:
        plural, _, group = collection.partition(".")
        quotas.observe(group, plural, namespace)


def _report_change(collector: GarbageCollector, event: StoreEvent) -> None:
    record, previous = event.record, event.previous.data if event.previous else b""
    collector.observe_change(record.data, previous, record.object, is_gone=event.change == "DELETED")


async def _report_present(store: Store, collector: GarbageCollector) -> None:
    """Report the objects that exist, as they are by now. Other tasks run in between."""
    keys = [record.key for collection in store.collections() for record in collection.all()]
    for number, key in enumerate(keys, 1):
        record = store.get(key)
        if record is not None:
            collector.observe_change(record.data, b"", record.object, is_gone=False)
        if number % _YIELD_INTERVAL == 0:
            await asyncio.sleep(0)


def _namespaced(catalog: Catalog) -> list[GroupVersionResource]:
    """Every resource with objects in namespaces; events last, so that they can report on the others."""
    resources = [
        GroupVersionResource(resource.group, resource.version, resource.plural)
        for resource in catalog.stored()
        if resource.namespaced and {"list", "delete"} <= set(resource.verbs)
    ]
    return sorted(resources, key=lambda ref: ref.plural == "events")
