"""Preemptors: heads of ClusterQueues that wait until the workloads they preempt have released their quota.

Nothing else gets that quota meanwhile. Each ClusterQueue has at most one preemptor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torchyard.core.queue.cluster_queue import ClusterQueue, QueueHead
from torchyard.core.queue.nomination import NominatedWorkload, replaced_slice
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class PendingPreemptors:
    def __init__(self, workloads: Mapping[Key, WorkloadInfo]) -> None:
        self._workloads = workloads
        self._by_cluster_queue: dict[str, NominatedWorkload] = {}
        self._waiting: dict[str, None] = {}  # ClusterQueues whose head needs the quota that preemptors of others get

    def __contains__(self, cq: ClusterQueue) -> bool:
        return cq.name in self._by_cluster_queue

    def has(self, entry: NominatedWorkload) -> bool:
        return self._by_cluster_queue.get(entry.cq.name) is entry

    def under(self, roots: Collection[QuotaNode]) -> list[NominatedWorkload]:
        return [entry for entry in self._by_cluster_queue.values() if entry.cq.node.root in roots]

    def add(self, entry: NominatedWorkload) -> None:
        entry.is_preemptor = True
        self._by_cluster_queue[entry.cq.name] = entry

    def wait(self, cq: ClusterQueue) -> None:
        self._waiting[cq.name] = None

    def get(self, cq: ClusterQueue) -> NominatedWorkload | None:
        return self._by_cluster_queue.get(cq.name)

    def is_valid(self, preemptor: NominatedWorkload, head: QueueHead | None) -> bool:
        """Whether it is still the head of its ClusterQueue, and its quota is free or will be."""
        return head is not None and head.info.is_queued_like(preemptor.info) and self._gets_quota(preemptor)

    def remove(self, cq: ClusterQueue) -> None:
        del self._by_cluster_queue[cq.name]

    def pop_due(self, cq: ClusterQueue) -> bool:
        """Whether to schedule the head of a ClusterQueue again, now that quota was released."""
        was_waiting = cq.name in self._waiting
        if was_waiting:
            del self._waiting[cq.name]
        preemptor = self._by_cluster_queue.get(cq.name)
        return was_waiting or (preemptor is not None and (preemptor.fits or not self._gets_quota(preemptor)))

    def clear(self) -> None:
        self._by_cluster_queue.clear()
        self._waiting.clear()

    def _gets_quota(self, preemptor: NominatedWorkload) -> bool:
        is_same_slice = replaced_slice(preemptor.info, preemptor.cq) is preemptor.replaced
        return is_same_slice and (preemptor.fits or self._are_targets_leaving(preemptor))

    def _are_targets_leaving(self, preemptor: NominatedWorkload) -> bool:
        targets = (self._workloads.get(key) for key in preemptor.target_keys)
        remaining = [info for info in targets if info is not None and info.reserved_in]
        return bool(remaining) and all(info.is_evicted for info in remaining)
