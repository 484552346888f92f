"""A ClusterQueue at run time: its quota node, the workloads that hold its quota, and those that are pending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from torchyard.api.queue import names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.flavor_assigner import Assignment, FlavorAssigner, FlavorScan
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.requirements import SchedulingRequirements
from torchyard.core.queue.resources import FlavorResourceQuantities
from torchyard.core.queue.specs import ClusterQueueSpec
from torchyard.core.queue.workload_info import EquivalenceKey, Key, QueueOrder, WorkloadInfo

_MIN_STALE_TO_REBUILD = 64
_NO_REASON = ReasonMessage("", "")
HeapKey = tuple[EquivalenceKey, Key | None]


class PendingHeap:
    """Pending workloads of one ClusterQueue that are scheduling-equivalent, in queue order.

    When the first of them cannot be admitted, none of the others can: the heap as a whole becomes inadmissible, and the
    scheduler does not look at it again before something changes that it depends on.
    """

    __slots__ = (
        "_heap",
        "_stale",
        "assigner",
        "blocked",
        "is_inadmissible",
        "next_scan",
        "pending_reason",
        "retry_thresholds",
        "scans",
        "skipped_scans",
        "unreported",
        "workloads",
    )

    def __init__(self, assigner: FlavorAssigner) -> None:
        self.assigner = assigner
        self.workloads: dict[Key, WorkloadInfo] = {}
        self._heap: list[QueueOrder] = []
        self._stale = 0  # entries of the heap whose workload left
        self.is_inadmissible = False
        self.unreported: dict[Key, None] = {}  # workloads whose status does not say yet why they are pending
        self.scans: list[FlavorScan] = []  # where the attempts of its head went on; the next one goes on at the last
        # Where attempts of its head went on because others got its flavors in the same cycle, and where the next does.
        self.skipped_scans: list[FlavorScan] = []
        self.next_scan: FlavorScan | None = None
        # While it is inadmissible:
        self.pending_reason = _NO_REASON
        self.retry_thresholds: FlavorResourceQuantities = {}  # when this much of one of them is available, retry
        self.blocked: Assignment | None = None  # what its head needs, if others use that and it cannot reclaim it

    def add(self, info: WorkloadInfo) -> None:
        self.workloads[info.key] = info
        heappush(self._heap, info.order)
        if not info.pending_message:
            self.unreported[info.key] = None

    def remove(self, key: Key) -> None:
        self.unreported.pop(key, None)
        if self.workloads.pop(key, None) is not None:
            self._stale += 1
            if self._stale > _MIN_STALE_TO_REBUILD and self._stale * 2 > len(self._heap):
                self._heap = [info.order for info in self.workloads.values()]
                heapify(self._heap)
                self._stale = 0

    def mark_inadmissible(self, retry_thresholds: FlavorResourceQuantities) -> None:
        self.is_inadmissible, self.retry_thresholds, self.blocked = True, retry_thresholds, None
        self.forget_attempts()

    def forget_attempts(self) -> None:
        """The next attempt tries all flavors again."""
        self.scans, self.skipped_scans, self.next_scan = [], [], None

    def skip_flavors(self, scan: FlavorScan) -> bool:
        """Others got what the head needs in this cycle: let it try the flavors after these. False if it has."""
        if not scan or scan in self.skipped_scans:
            return False
        self.skipped_scans.append(scan)
        self.next_scan = scan
        return True

    @property
    def head(self) -> WorkloadInfo | None:
        while self._heap:
            order = self._heap[0]
            info = self.workloads.get(order[2])
            if info is not None and info.order == order:
                return info
            heappop(self._heap)
            self._stale = max(0, self._stale - 1)
        return None


class QueueHead(NamedTuple):
    heap: PendingHeap
    info: WorkloadInfo


class ClusterQueue:
    def __init__(
        self,
        spec: ClusterQueueSpec,
        node: QuotaNode,
        flavors: Mapping[str, Flavor],
        usage_of: Callable[[Key], float] | None = None,
    ) -> None:
        """`usage_of`: what a LocalQueue consumed, if those that consumed less come first."""
        self.name, self.spec, self.node, self._flavors, self._usage_of = spec.name, spec, node, flavors, usage_of
        self.heaps: dict[HeapKey, PendingHeap] = {}
        self.pending: dict[Key, WorkloadInfo] = {}
        self.reserving: dict[Key, WorkloadInfo] = {}  # workloads that hold quota
        self.inactive: ReasonMessage | None = None  # None: it can admit

    def add_pending(self, info: WorkloadInfo) -> PendingHeap:
        self.pending[info.key] = info
        heap = self.heap_of(info)
        if heap is None:
            heap = self.heaps[self._heap_key(info)] = PendingHeap(self.assigner_for(info.requirements))
        previous_head = heap.head
        heap.add(info)
        if heap.head is not previous_head:
            heap.forget_attempts()
            heap.is_inadmissible = False  # the new head has a higher priority, so it may preempt
        return heap

    def heap_of(self, info: WorkloadInfo) -> PendingHeap | None:
        return self.heaps.get(self._heap_key(info))

    def _heap_key(self, info: WorkloadInfo) -> HeapKey:
        """With usage-based order, the workloads of a heap are of one LocalQueue, so they have one place in it."""
        return info.equivalence_key, None if self._usage_of is None else info.local_queue

    def consumed_by(self, info: WorkloadInfo) -> float:
        """What the LocalQueue of a workload consumed; 0 if the order does not depend on that."""
        return 0.0 if self._usage_of is None else self._usage_of(info.local_queue)

    def assigner_for(self, requirements: SchedulingRequirements) -> FlavorAssigner:
        return FlavorAssigner(requirements, self.spec, self._flavors)

    def remove_pending(self, info: WorkloadInfo) -> None:
        if self.pending.pop(info.key, None) is None:
            return
        heap = self.heap_of(info)
        if heap is not None:
            previous_head = heap.head
            heap.remove(info.key)
            if not heap.workloads:
                del self.heaps[self._heap_key(info)]
            elif previous_head is info:
                heap.is_inadmissible = False
                heap.forget_attempts()
        if self.spec.is_strict_fifo and (head := self._first(self.heaps.values())) is not None:
            head.heap.is_inadmissible = False  # as in Kueue, the head of a StrictFIFO queue is always tried

    def head(self) -> QueueHead | None:
        """The next workload to schedule: the first of the admissible heaps; with StrictFIFO only the very first."""
        if self.inactive is not None:
            return None
        if self.spec.is_strict_fifo:
            head = self._first(self.heaps.values())
            return None if head is not None and head.heap.is_inadmissible else head
        return self._first(heap for heap in self.heaps.values() if not heap.is_inadmissible)

    def forget_attempts(self) -> None:
        for heap in self.heaps.values():
            heap.forget_attempts()

    def is_strict_head(self, info: WorkloadInfo) -> bool:
        """Whether a workload is the first of a StrictFIFO queue."""
        head = self._first(self.heaps.values()) if self.spec.is_strict_fifo else None
        return head is not None and head.info is info

    def retry_head(self) -> bool:
        """Make the head admissible again if it waits for quota. Returns whether it does."""
        head = self._first(self.heaps.values()) if self.inactive is None else None
        if head is None or not head.heap.is_inadmissible or not head.heap.retry_thresholds:
            return False
        head.heap.is_inadmissible = False
        return True

    def blocked_head(self) -> QueueHead | None:
        """The first workload of a StrictFIFO queue, if it waits for quota that it cannot reclaim."""
        head = self._first(self.heaps.values()) if self.inactive is None and self.spec.is_strict_fifo else None
        return head if head is not None and head.heap.is_inadmissible and head.heap.blocked is not None else None

    def retry_preemptors_of(self, priority: int) -> None:
        """A workload of this priority got quota here: pending ones of a higher priority may preempt it."""
        if self.spec.preemption.within_cluster_queue == names.NEVER:
            return
        for heap in self.heaps.values():
            head = heap.head
            if heap.is_inadmissible and heap.retry_thresholds and head is not None and head.priority > priority:
                heap.is_inadmissible = False

    def _first(self, heaps: Iterable[PendingHeap]) -> QueueHead | None:
        first: QueueHead | None = None
        first_order: tuple[float, QueueOrder] | None = None
        for heap in heaps:
            info = heap.head
            if info is not None:
                order = (self.consumed_by(info), info.order)
                if first_order is None or order < first_order:
                    first, first_order = QueueHead(heap, info), order
        return first
