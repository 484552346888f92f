"""Everything the scheduler knows, kept up to date object by object, so that a cycle costs only what has changed.

The owner of a `QueueState` reports objects that were added, changed or deleted, and calls `scheduler.schedule`. A
change of the objects that define quota is rare and rebuilds everything. Namespaces and LocalQueues come and go with
their users, so their changes re-evaluate only their own workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.admission_fair_sharing import LocalQueueUsage
from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.eligibility import NamespaceLabels, local_queue_reason
from torchyard.core.queue.pending import PendingQueues
from torchyard.core.queue.pod_defaults import NO_DEFAULTS, PodDefaults
from torchyard.core.queue.quota_objects import QuotaObjects
from torchyard.core.queue.resources import FlavorResourceQuantities
from torchyard.core.queue.settings import AdmissionFairSharing, FairSharing
from torchyard.core.queue.workload_info import Key, WorkloadInfo, resource_version_of


class QueueState:
    def __init__(
        self,
        labels_of: NamespaceLabels,
        *,
        block_admission: bool = False,
        fair_sharing: FairSharing | None = None,
        admission_fair_sharing: AdmissionFairSharing | None = None,
    ) -> None:
        """`block_admission`: admit nothing before the pods of all admitted workloads are ready, as in Kueue.

        `fair_sharing`: how cohorts share by weight; None if they do not. `admission_fair_sharing`: how LocalQueues
        share by past usage.
        """
        self.fair_sharing = fair_sharing
        self.usage = None if admission_fair_sharing is None else LocalQueueUsage(admission_fair_sharing)
        usage_of = None if self.usage is None else self.usage.usage
        self.objects = QuotaObjects(is_fair=fair_sharing is not None, usage_of=usage_of)
        self.cache = QueueCache(labels_of, block_admission=block_admission)
        self.pending = PendingQueues(self.cache, is_fair=fair_sharing is not None)
        self._pod_defaults: dict[str, PodDefaults] = {}  # by namespace

    def set_pod_defaults(self, namespace: str, defaults: PodDefaults) -> None:
        """Its LimitRanges or the RuntimeClasses changed, so its pending workloads may need another amount of quota."""
        if defaults == self._pod_defaults.get(namespace, NO_DEFAULTS):
            return
        self._pod_defaults[namespace] = defaults
        for info in self.cache.by_local_queue.pending(self.cache.by_local_queue.used_in(namespace)):
            self._put(WorkloadInfo(info.obj, info, defaults), info)

    def put_local_queue(self, obj: Object) -> None:
        metadata = obj["metadata"]
        key, spec = (metadata["namespace"], metadata["name"]), obj.get("spec") or {}
        if self.usage is not None:
            self.usage.put(key, obj)
        if self.cache.local_queues.get(key) != spec:
            self._set_local_queue(key, spec)

    def delete_local_queue(self, key: Key) -> None:
        if self.usage is not None:
            self.usage.remove(key)
        if key in self.cache.local_queues:
            self._set_local_queue(key, None)

    def _set_local_queue(self, key: Key, spec: Object | None) -> None:
        """Re-evaluate only the workloads of this LocalQueue: all workloads would make n LocalQueues cost n squared."""
        local_queues = self.cache.local_queues
        with self._reevaluate([key]):
            if spec is None:
                del local_queues[key]
            else:
                local_queues[key] = spec
        self.cache.changed_local_queues.add(key)

    def namespace_changed(self, namespace: str) -> None:
        """It was created, or its labels changed: ClusterQueues may select it now, or no longer."""
        with self._reevaluate(self.cache.by_local_queue.used_in(namespace)):
            pass

    @contextmanager
    def _reevaluate(self, local_queues: Iterable[Key]) -> Iterator[None]:
        """Remove the pending workloads of these LocalQueues, and add them again after the change."""
        # A rebuild is due and evaluates all workloads anyway.
        workloads = [] if self.objects.has_changed else self.cache.by_local_queue.pending(local_queues)
        for info in workloads:
            self._remove(info)
        yield
        for info in workloads:
            self._add(info)

    def put_workload(self, obj: Object, *, force: bool = False) -> WorkloadInfo:
        """Take the current version of a workload; a version older than the known one is ignored.

        `force`: take it also if it is not newer, because what was assumed of the workload was not written. Parts of
        `obj` are replaced by equal ones of other workloads.
        """
        metadata = obj["metadata"]
        known = self.cache.workloads.get((metadata.get("namespace", ""), metadata["name"]))
        is_same = known is not None and known.uid == metadata.get("uid", "")
        resource_version = resource_version_of(obj)
        if known is not None and is_same and not force and known.resource_version >= resource_version > 0:
            if known.resource_version == resource_version:
                known.obj = obj  # the caller keeps this copy anyway, so drop ours
            return known
        info = WorkloadInfo(obj, known, self._pod_defaults.get(metadata.get("namespace", ""), NO_DEFAULTS))
        info.share_equal_parts()
        if known is not None and is_same and self.cache.replace_reserving(known, info):
            return info
        self._put(info, known)
        return info

    def _put(self, info: WorkloadInfo, known: WorkloadInfo | None) -> None:
        if known is not None:
            self._remove(known)
        self.cache.put_workload(info)
        self._add(info)

    def remove_workload(self, key: Key) -> None:
        info = self.cache.workloads.get(key)
        if info is not None:
            self._remove(info)
            self.cache.remove_workload(info)

    def assume(self, info: WorkloadInfo, cluster_queue: str, usage: FlavorResourceQuantities, now: float) -> None:
        """Count quota as reserved before the reservation is written."""
        self._remove(info)
        info.reserved_in, info.usage, info.reserved_at, info.is_evicted = cluster_queue, dict(usage), now, False
        self.cache.by_local_queue.put(info)
        self._add(info)
        if self.usage is not None:
            self.usage.charge(info.local_queue, info.usage)

    def retire(self, info: WorkloadInfo) -> None:
        """Release the quota of a workload slice that is replaced by another."""
        self._remove(info)
        info.is_finished = True
        self.cache.by_local_queue.put(info)

    def refresh(self) -> None:
        """Before a cycle: rebuild if objects that define quota changed, and requeue what released quota may serve."""
        self.pending.activate_waiting_for_pods()
        if not self.objects.has_changed:
            self.pending.requeuer.requeue_released()
            return
        self.cache.set_hierarchy(self.objects.build())
        self.pending.clear()
        for info in self.cache.workloads.values():
            self._add(info)
        self.pending.active.clear()
        self.pending.active.update(dict.fromkeys(self.cache.cluster_queues))

    def _remove(self, info: WorkloadInfo) -> None:
        self.pending.clear_ineligible(info.key)
        if info.reserved_in:
            cq = self.cache.remove_reservation(info)
            if cq is not None:
                self.pending.requeuer.quota_released(cq.node.root)
            return
        cq = self.cache.cluster_queue_of(info)
        if cq is not None and info.key in cq.pending:
            self.pending.remove(info, cq)

    def _add(self, info: WorkloadInfo) -> None:
        if info.is_finished:
            return
        if info.reserved_in:
            cq = self.cache.add_reservation(info)
            if cq is not None:
                cq.retry_preemptors_of(info.priority)
                self.pending.activate(cq)
            return
        if info.is_deleting:
            return
        reason, cq = self.cache.ineligible_reason(info), self.cache.cluster_queue_of(info)
        if reason is not None:
            self.pending.set_ineligible(info, reason)
            if cq is not None and reason.reason == messages.REASON_NAMESPACE_MISMATCH:
                self.pending.count(info, cq)
                return
            if cq is None or cq.inactive is None or local_queue_reason(info, self.cache.local_queues) is not None:
                return  # the pending workloads of an inactive ClusterQueue count as pending in it
        if cq is not None:
            self.pending.add(info, cq)


def sample_usage(state: QueueState, now: float) -> list[Key]:
    """Sample what LocalQueues use, where that is due. Returns these; their places may have changed."""
    usage, cache = state.usage, state.cache
    if usage is None:
        return []
    due = [key for key in cache.local_queues if usage.is_due(key, now)]
    for key in due:
        admitted: dict[str, int] = {}
        for info in cache.by_local_queue.reserving(key):
            for (_, resource), amount in info.usage.items() if info.is_admitted else ():
                admitted[resource] = admitted.get(resource, 0) + amount
        usage.sample(key, admitted, now)
        cq = cache.cluster_queues.get(cache.local_queues[key].get("clusterQueue", ""))
        if cq is not None and cq.spec.is_usage_based:
            state.pending.activate(cq)
    return due
