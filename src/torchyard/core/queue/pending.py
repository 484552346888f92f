"""The pending queues: which ClusterQueues the next cycle looks at, and which workloads wait for something else."""

from __future__ import annotations

from collections import Counter

from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap, QueueHead
from torchyard.core.queue.nomination import NominatedWorkload
from torchyard.core.queue.preemptors import PendingPreemptors
from torchyard.core.queue.requeue import InadmissibleRequeuer
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class PendingQueues:
    def __init__(self, cache: QueueCache, *, is_fair: bool = False) -> None:
        """`is_fair`: whether cohorts share by weight."""
        self._cache = cache
        self.active: dict[str, None] = {}  # ClusterQueues that may have something to admit
        self.counts: Counter[Key] = Counter()  # pending workloads by LocalQueue
        self.ineligible: dict[Key, ReasonMessage] = {}  # workloads that no queue admits
        self.unreported: dict[Key, None] = {}  # of these: those whose status does not say why yet
        self.joined: dict[PendingHeap, None] = {}  # inadmissible heaps with new workloads, which get the heap's reason
        self.preemptors = PendingPreemptors(cache)
        self.requeuer = InadmissibleRequeuer(self.active, self.preemptors, cache.members_of, is_fair=is_fair)
        self._waiting_for_pods: dict[str, None] = {}  # ClusterQueues whose head fits, but admission is blocked

    def add(self, info: WorkloadInfo, cq: ClusterQueue) -> None:
        heap = cq.add_pending(info)
        if heap.is_inadmissible and not info.pending_message:
            self.joined[heap] = None
        self.counts[info.local_queue] += 1
        self._cache.mark_changed(info, cq)
        self.activate(cq)
        if cq.is_strict_head(info):
            self.requeuer.head_changed(cq)

    def count(self, info: WorkloadInfo, cq: ClusterQueue) -> None:
        """A workload that is not scheduled, but counts as pending."""
        cq.pending[info.key] = info
        self.counts[info.local_queue] += 1
        self._cache.mark_changed(info, cq)

    def remove(self, info: WorkloadInfo, cq: ClusterQueue) -> None:
        cq.remove_pending(info)
        self.counts[info.local_queue] -= 1
        self._cache.mark_changed(info, cq)
        self.activate(cq)
        self.requeuer.head_changed(cq)

    def activate(self, cq: ClusterQueue) -> None:
        self.active[cq.name] = None
        self._cache.changed.add(cq.name)

    def set_ineligible(self, info: WorkloadInfo, reason: ReasonMessage) -> None:
        self.ineligible[info.key] = reason
        if info.pending_message == reason.message:
            info.pending_cause = reason.reason
        elif reason.message:
            self.unreported[info.key] = None

    def clear_ineligible(self, key: Key) -> None:
        self.ineligible.pop(key, None)
        self.unreported.pop(key, None)

    def head(self, cq: ClusterQueue) -> QueueHead | None:
        """The next workload to schedule: the preemptor if there is one, unless a StrictFIFO queue has another head."""
        head = None if cq.spec.is_strict_fifo else self.preemptors.head(cq)
        if head is None:
            head = cq.head()
        if cq in self.preemptors and (head is None or not self.preemptors.is_preemptor(cq, head.info.key)):
            self.remove_preemptor(cq)
        return head

    def add_preemptor(self, entry: NominatedWorkload) -> None:
        """Workloads are evicted for it. As in Kueue, no workload of its queue passes it until it has its quota."""
        self.preemptors.add(entry.cq, entry.info.key, entry.assignment)
        self.park(entry.cq)

    def remove_preemptor(self, cq: ClusterQueue) -> None:
        if cq in self.preemptors:
            self.preemptors.remove(cq)
            self.requeuer.preemptor_removed(cq.node.root)

    def wait_for_preemptors(self, cq: ClusterQueue) -> None:
        """Its head needs what preemptors get: it is active again when quota is released or one of them is gone."""
        if cq in self.preemptors:
            self.preemptors.remove(cq)
            self.requeuer.preemptor_displaced(cq.node.root)
        self.active.pop(cq.name, None)
        self.preemptors.wait(cq)

    def park(self, cq: ClusterQueue) -> None:
        """Nothing of this ClusterQueue can be admitted now."""
        self.active.pop(cq.name, None)
        self.requeuer.nothing_admitted(cq)

    def wait_for_pods_ready(self, cq: ClusterQueue) -> None:
        """Its head fits: it is active again when the pods of all admitted workloads are ready."""
        self.active.pop(cq.name, None)
        self._waiting_for_pods[cq.name] = None

    def activate_waiting_for_pods(self) -> None:
        if self._waiting_for_pods and not self._cache.is_admission_blocked:
            self.active.update(self._waiting_for_pods)
            self._waiting_for_pods = {}

    def clear(self) -> None:
        """Before the workloads are added to a new hierarchy."""
        self.preemptors.clear()
        self.requeuer.clear()
        self.ineligible.clear()
        self.counts.clear()
        self.active.clear()
        self.joined = {}
