"""Preemptors: workloads that wait until the workloads they preempt have released their quota.

As in Kueue, a preemptor takes part in every cycle until it has its quota, and no workload of a BestEffortFIFO queue
passes it. Each ClusterQueue has at most one.
"""

from __future__ import annotations

from collections.abc import Collection

from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.cluster_queue import ClusterQueue, QueueHead
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class PendingPreemptors:
    def __init__(self, cache: QueueCache) -> None:
        self._cache = cache
        self._by_cluster_queue: dict[str, Key] = {}
        self._assignments: dict[str, Assignment] = {}  # by ClusterQueue: the flavors in which quota is being freed
        # By root: ClusterQueues whose head needs the quota that preemptors or blocked heads of others get.
        self._waiting: dict[QuotaNode, dict[str, None]] = {}

    def __contains__(self, cq: ClusterQueue) -> bool:
        return cq.name in self._by_cluster_queue

    def under(self, roots: Collection[QuotaNode]) -> list[ClusterQueue]:
        """The ClusterQueues under these roots that have a preemptor."""
        queues = map(self._cache.cluster_queues.get, self._by_cluster_queue)
        return [cq for cq in queues if cq is not None and cq.node.root in roots]

    def add(self, cq: ClusterQueue, key: Key, assignment: Assignment) -> None:
        self._by_cluster_queue[cq.name], self._assignments[cq.name] = key, assignment

    def remove(self, cq: ClusterQueue) -> None:
        self._by_cluster_queue.pop(cq.name, None)
        self._assignments.pop(cq.name, None)

    def freed_assignment(self, cq: ClusterQueue, info: WorkloadInfo) -> Assignment | None:
        """The flavors in which a preemptor freed quota, if it has to take them.

        As in Kueue, it may get other ones. They depend on what is free for this pod set and for those before it. Then
        the preempted workloads may take the freed ones again, are preempted again, and so on: not without end here.
        """
        is_bound = info.has_preempted_often and self.is_preemptor(cq, info.key)
        return self._assignments.get(cq.name) if is_bound else None

    def is_preemptor(self, cq: ClusterQueue, key: Key) -> bool:
        return self._by_cluster_queue.get(cq.name) == key

    def head(self, cq: ClusterQueue) -> QueueHead | None:
        """The preemptor of a ClusterQueue, if it is still pending there."""
        key = self._by_cluster_queue.get(cq.name)
        info = cq.pending.get(key) if key is not None and cq.inactive is None else None
        heap = cq.heap_of(info) if info is not None else None
        return None if heap is None or info is None or info.key not in heap.workloads else QueueHead(heap, info)

    def wait(self, cq: ClusterQueue) -> None:
        self._waiting.setdefault(cq.node.root, {})[cq.name] = None

    def has_waiting(self, root: QuotaNode) -> bool:
        return root in self._waiting

    def pop_due(self, cq: ClusterQueue) -> bool:
        """Whether to schedule the head of a ClusterQueue again, now that quota was released."""
        waiting = self._waiting.get(cq.node.root, {})
        was_waiting = cq.name in waiting
        if was_waiting:
            del waiting[cq.name]
            cq.forget_attempts()
            if not waiting:
                del self._waiting[cq.node.root]
        return was_waiting or cq.name in self._by_cluster_queue

    def clear(self) -> None:
        """Before a new hierarchy. All heads are scheduled again, and preemptors stay what they are."""
        self._waiting.clear()
        self._assignments.clear()
