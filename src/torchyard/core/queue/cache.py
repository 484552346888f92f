"""The cache: all workloads, the LocalQueues and ClusterQueues they belong to, and the quota they hold."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.eligibility import NamespaceLabels, ineligible_reason
from torchyard.core.queue.hierarchy import QuotaHierarchy
from torchyard.core.queue.nomination import BlockedHead
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class LocalQueueIndex:
    """Workloads by the LocalQueue they name, whether it exists or not.

    Those that hold quota are apart: a LocalQueue's status is written for each change and must not look at what waits.
    """

    def __init__(self) -> None:
        self._reserving: dict[Key, dict[Key, WorkloadInfo]] = {}
        self._others: dict[Key, dict[Key, WorkloadInfo]] = {}

    def put(self, info: WorkloadInfo) -> None:
        """Also of a known workload that has got quota, or has finished."""
        holds_quota = info.reserved_in and not info.is_finished
        into, other = (self._reserving, self._others) if holds_quota else (self._others, self._reserving)
        into.setdefault(info.local_queue, {})[info.key] = info
        _discard(other, info)

    def remove(self, info: WorkloadInfo) -> None:
        _discard(self._reserving, info)
        _discard(self._others, info)

    def used_in(self, namespace: str) -> list[Key]:
        """The LocalQueues that workloads of a namespace name."""
        return [key for key in {**self._reserving, **self._others} if key[0] == namespace]

    def reserving(self, local_queue: Key) -> list[WorkloadInfo]:
        """Those with quota; what has finished has none."""
        return list(self._reserving.get(local_queue, {}).values())

    def pending(self, local_queues: Iterable[Key]) -> list[WorkloadInfo]:
        workloads = (info for key in local_queues for info in self._others.get(key, {}).values())
        return [info for info in workloads if not info.reserved_in]


def _discard(workloads: dict[Key, dict[Key, WorkloadInfo]], info: WorkloadInfo) -> None:
    of_queue = workloads.get(info.local_queue)
    if of_queue is not None and of_queue.pop(info.key, None) is not None and not of_queue:
        del workloads[info.local_queue]


class QueueCache:
    def __init__(self, labels_of: NamespaceLabels, *, block_admission: bool = False) -> None:
        """`block_admission`: admit nothing before the pods of all admitted workloads are ready."""
        self._labels_of, self._block_admission = labels_of, block_admission
        self.workloads: dict[Key, WorkloadInfo] = {}
        self.local_queues: dict[Key, Object] = {}  # their specs
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        self.changed: set[str] = set()  # ClusterQueues whose status is out of date
        self.changed_local_queues: set[Key] = set()
        self.changed_cohorts: set[str] = set()  # with a new configuration; their usage is that of ClusterQueues
        self.by_local_queue = LocalQueueIndex()
        self._members: dict[QuotaNode, list[ClusterQueue]] = {}
        self._strict_members: dict[QuotaNode, list[ClusterQueue]] = {}
        self._not_ready: set[Key] = set()  # workloads with quota whose pods are not all ready

    def set_hierarchy(self, hierarchy: QuotaHierarchy) -> None:
        """Replace all ClusterQueues. No workload holds quota afterwards: the caller adds the reservations again."""
        self.cluster_queues, self._members, self.cohorts = hierarchy
        self._strict_members = {
            root: [cq for cq in members if cq.spec.is_strict_fifo and cq.node is not root]
            for root, members in self._members.items()
        }
        self._not_ready.clear()
        self.changed.update(self.cluster_queues)
        self.changed_local_queues.update(self.local_queues)
        self.changed_cohorts.update(self.cohorts)

    def put_workload(self, info: WorkloadInfo) -> None:
        previous = self.workloads.get(info.key)
        if previous is not None:
            self.by_local_queue.remove(previous)
        self.workloads[info.key] = info
        self.by_local_queue.put(info)

    def remove_workload(self, info: WorkloadInfo) -> None:
        del self.workloads[info.key]
        self.by_local_queue.remove(info)

    def replace_reserving(self, previous: WorkloadInfo, info: WorkloadInfo) -> bool:
        """Exchange a workload for a version with the same reservation. False if there is something to recompute.

        Most updates of a workload with quota change nothing that the scheduler depends on.
        """
        cq = self.cluster_queues.get(info.reserved_in)
        if cq is None or cq.reserving.get(info.key) is not previous or not previous.has_same_reservation(info):
            return False
        self.workloads[info.key] = cq.reserving[info.key] = info
        self.by_local_queue.put(info)
        if info.is_ready:
            self._not_ready.discard(info.key)
        else:
            self._not_ready.add(info.key)
        self.mark_changed(info, cq)
        return True

    def add_reservation(self, info: WorkloadInfo) -> ClusterQueue | None:
        """Count the quota a workload holds. Returns its ClusterQueue, None if that does not exist."""
        cq = self.cluster_queues.get(info.reserved_in)
        if cq is not None:
            cq.reserving[info.key] = info
            cq.node.add_usage(info.usage)
            if not info.is_ready:
                self._not_ready.add(info.key)
            self.mark_changed(info, cq)
        return cq

    def remove_reservation(self, info: WorkloadInfo) -> ClusterQueue | None:
        """Release the quota of a workload. Returns its ClusterQueue, None if it held none."""
        cq = self.cluster_queues.get(info.reserved_in)
        if cq is None or cq.reserving.pop(info.key, None) is None:
            return None
        cq.node.remove_usage(info.usage)
        self._not_ready.discard(info.key)
        self.mark_changed(info, cq)
        return cq

    def mark_changed(self, info: WorkloadInfo, cq: ClusterQueue) -> None:
        """The statuses of a workload's queues are out of date."""
        self.changed.add(cq.name)
        self.changed_local_queues.add(info.local_queue)

    def cluster_queue_of(self, info: WorkloadInfo) -> ClusterQueue | None:
        """The ClusterQueue behind a workload's LocalQueue."""
        spec = self.local_queues.get(info.local_queue)
        return self.cluster_queues.get(spec.get("clusterQueue", "")) if spec else None

    def ineligible_reason(self, info: WorkloadInfo) -> ReasonMessage | None:
        return ineligible_reason(info, self.local_queues, self.cluster_queues, self._labels_of)

    def members(self, cq: ClusterQueue) -> list[ClusterQueue]:
        """The ClusterQueues that share quota with one, itself included."""
        return self._members.get(cq.node.root, [cq])

    def members_of(self, root: QuotaNode) -> Iterable[ClusterQueue]:
        return self._members.get(root, ())

    def reserving_workloads(self, namespace: str, queue: str) -> list[WorkloadInfo]:
        """The workloads with quota of a LocalQueue or, without a namespace, of a ClusterQueue."""
        if namespace:
            return self.by_local_queue.reserving((namespace, queue))
        cq = self.cluster_queues.get(queue)
        if cq is None:  # the hierarchy does not have it yet
            return [info for info in self.workloads.values() if info.reserved_in == queue]
        return list(cq.reserving.values())

    def blocked_heads(self, roots: Iterable[QuotaNode]) -> list[BlockedHead]:
        """The heads of StrictFIFO queues that take part in every cycle, because quota is reserved for them."""
        heads = ((cq, cq.blocked_head()) for root in roots for cq in self._strict_members.get(root, ()))
        return [
            BlockedHead(cq, head.info, head.heap.blocked)
            for cq, head in heads
            if head is not None and head.heap.blocked is not None
        ]

    @property
    def is_admission_blocked(self) -> bool:
        """Whether nothing may be admitted until more pods are ready."""
        return self._block_admission and bool(self._not_ready)


def workloads_of_cluster_queue(cache: QueueCache, name: str) -> list[WorkloadInfo]:
    """Those that hold its quota, and those that are pending in its LocalQueues."""
    local_queues = [key for key, spec in cache.local_queues.items() if spec.get("clusterQueue") == name]
    return [*cache.reserving_workloads("", name), *cache.by_local_queue.pending(local_queues)]
