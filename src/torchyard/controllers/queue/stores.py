"""The scheduler's state, kept up to date by informers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from torchyard.api.gvr import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.controllers.queue.gvr import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    WORKLOADS,
)
from torchyard.controllers.queue.writer import WorkloadWriter
from torchyard.core.queue.advice import with_advice
from torchyard.core.queue.pod_defaults import PodDefaults
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import Key, resource_version_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, ResourceEventHandler, by_namespace, key_of
from torchyard.kube.informer_factory import InformerFactory

_MAX_PENDING_EVENTS = 50_000  # thousands of workloads may be admitted at once
_JOB_INDEX, _NAMESPACE_INDEX = "job", "namespace"


class WorkloadStore:
    """Workloads and flavors: all that the reconcilers of jobs need."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        settings: QueueSettings | None = None,
    ) -> None:
        self.client, self.clock = client, clock
        settings = settings or QueueSettings()
        self.state = QueueState(
            self._namespace_labels,
            block_admission=settings.pods_ready and settings.block_admission,
            fair_sharing=settings.fair_sharing,
            admission_fair_sharing=settings.admission_fair_sharing,
        )
        self.writer = WorkloadWriter(client, self._sync)
        # Not interned: only finished workloads share many strings, and the state interns those itself.
        self.workloads = informers.for_resource(WORKLOADS, indexes={_JOB_INDEX: _jobs_of}, interns=False)
        self.flavors = informers.for_resource(FLAVORS)
        self.informers: list[Informer] = [self.flavors, self.workloads]
        self._listeners: list[Callable[[], None]] = []
        self.workloads.on_change(self._workload_changed)
        self.flavors.on_change(self._follow(self.state.objects.put_flavor, names.FLAVOR.kind))

    def _namespace_labels(self, _namespace: str) -> Mapping[str, str] | None:
        return None

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called whenever there may be something to schedule."""
        self._listeners.append(listener)

    def now(self) -> float:
        return self.clock().timestamp()

    def notify(self) -> None:
        for listener in self._listeners:
            listener()

    def is_busy(self) -> bool:
        """Whether workloads are being admitted, or were a moment ago: events and statuses give way to that."""
        return self.writer.is_busy() or bool(self.state.pending.active)

    def discard_assumption(self, key: Key) -> None:
        """Take a workload as it is stored, not as it was assumed."""
        info = self.state.cache.workloads.get(key)
        if info is not None and not self.writer.is_writing(key):
            self._sync(key, info.obj)

    def _sync(self, key: Key, known: Object) -> None:
        """Put the newest version into the state: `known`, or what the watch brought meanwhile."""
        watched = self.workloads.get(*key)
        if watched is None:
            self.state.remove_workload(key)
        else:
            self.state.put_workload(max(known, watched, key=resource_version_of), force=True)
        self.notify()

    def new_recorder(self, component: str) -> EventRecorder:
        return EventRecorder(self.client, component, clock=self.clock, limit=_MAX_PENDING_EVENTS, is_busy=self.is_busy)

    def workloads_of_job(self, kind: str, key: Key) -> list[Object]:
        """The workloads of all jobs of this name, those of deleted ones too."""
        workloads = self.workloads.by(_JOB_INDEX, "/".join((kind, *key)))
        return [self.current(key_of(workload)) or workload for workload in workloads]

    def current(self, key: Key) -> Object | None:
        """The newest known version of a workload: what was written, or what the watch brought."""
        info, watched = self.state.cache.workloads.get(key), self.workloads.get(*key)
        if info is None:
            return None
        return watched if watched is not None and resource_version_of(watched) > info.resource_version else info.obj

    def pending_cause(self, _key: Key) -> ReasonMessage | None:
        """Why a workload is pending, with advice, where that is known better than from its condition."""
        return None

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        metadata = obj["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if change == "DELETED":
            self.state.remove_workload(key)
        elif self.writer.is_writing(key) or self.state.cache.workloads.get(key) is self.state.put_workload(obj):
            return
        self.notify()

    def _follow(self, put: Callable[[Object], None], kind: str) -> ResourceEventHandler:
        def follow(change: str, obj: Object, _before: Object | None) -> None:
            if change == "DELETED":
                self.state.objects.delete(kind, obj["metadata"]["name"])
            else:
                put(obj)
            self.notify()

        return follow


class QueueStore(WorkloadStore):
    """With the queues and namespaces: all that the scheduler needs."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        settings: QueueSettings | None = None,
    ) -> None:
        super().__init__(client, informers, clock, settings)
        objects = self.state.objects
        self.namespaces = informers.for_resource(NAMESPACES)
        self.local_queues = informers.for_resource(LOCAL_QUEUES)
        self.cluster_queues = informers.for_resource(CLUSTER_QUEUES)
        self.cohorts, self.checks = informers.for_resource(COHORTS), informers.for_resource(CHECKS)
        self._limit_ranges = informers.for_resource(LIMIT_RANGES, indexes={_NAMESPACE_INDEX: by_namespace})
        self._runtime_classes = informers.for_resource(RUNTIME_CLASSES)
        self.informers = [
            *(self.namespaces, self._limit_ranges, self._runtime_classes),
            *(self.cohorts, self.checks, self.cluster_queues, self.local_queues),
            *self.informers,
        ]
        self.namespaces.on_change(self._namespace_changed)
        self.local_queues.on_change(self._local_queue_changed)
        self._limit_ranges.on_change(self._limit_range_changed)
        self._runtime_classes.on_change(self._runtime_class_changed)
        self.cohorts.on_change(self._follow(objects.put_cohort, names.COHORT.kind))
        self.checks.on_change(self._follow(objects.put_check, names.CHECK.kind))
        self.cluster_queues.on_change(self._follow(objects.put_cluster_queue, names.CLUSTER_QUEUE.kind))

    def _namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        obj = self.namespaces.get("", namespace)
        return (obj["metadata"].get("labels") or {}) if obj is not None else None

    def pending_cause(self, key: Key) -> ReasonMessage | None:
        info = self.state.cache.workloads.get(key)
        if info is None or not info.pending_cause or not info.pending_message:
            return None
        why = ReasonMessage(info.pending_cause, info.pending_message)
        return ReasonMessage(why.reason, with_advice(self.state, info, why))

    def _limit_range_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        self._set_pod_defaults(obj["metadata"]["namespace"])
        self.notify()

    def _runtime_class_changed(self, _change: str, _obj: Object, _before: Object | None) -> None:
        for namespace in self.namespaces.all():
            self._set_pod_defaults(namespace["metadata"]["name"])
        self.notify()

    def _set_pod_defaults(self, namespace: str) -> None:
        defaults = PodDefaults.of(self._limit_ranges.by(_NAMESPACE_INDEX, namespace), self._runtime_classes.all())
        self.state.set_pod_defaults(namespace, defaults)

    def _namespace_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        if before is None or before["metadata"].get("labels") != obj["metadata"].get("labels"):
            self._set_pod_defaults(obj["metadata"]["name"])
            self.state.namespace_changed(obj["metadata"]["name"])
            self.notify()

    def _local_queue_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if change == "DELETED":
            self.state.delete_local_queue(key_of(obj))
        else:
            self.state.put_local_queue(obj)
        self.notify()


def _jobs_of(workload: Object) -> list[str]:
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return [
        "/".join((owner["kind"], metadata["namespace"], owner["name"])) for owner in owners if owner.get("controller")
    ]
