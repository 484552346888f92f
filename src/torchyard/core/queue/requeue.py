"""Which inadmissible workloads to schedule again after quota was released.

As many as the released quota can serve, in the order in which it would serve them. To retry all of them would cost a
cohort of a hundred ClusterQueues a hundred attempts for every workload that finishes, ninety-nine of them in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from torchyard.api.queue import names
from torchyard.core.queue.borrowing import borrowing_height, lowest_subtree, needed_from_root
from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap
from torchyard.core.queue.fair_preemption import ShareComparison
from torchyard.core.queue.preemptors import PendingPreemptors
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities
from torchyard.core.queue.workload_info import QueueOrder

_MAX_DELAY = 100  # cycles


class InadmissibleRequeuer:
    """Collects the roots where quota was released, and makes heaps under them admissible again.

    `active` holds the names of the ClusterQueues that the next scheduling cycle looks at.
    """

    def __init__(
        self,
        active: dict[str, None],
        preemptors: PendingPreemptors,
        members_of: Callable[[QuotaNode], Iterable[ClusterQueue]],
        *,
        is_fair: bool,
    ) -> None:
        self._active, self._preemptors, self._members_of, self._is_fair = active, preemptors, members_of, is_fair
        self._released: dict[QuotaNode, None] = {}
        self._skipped: dict[QuotaNode, None] = {}  # roots where heaps were left out, since quota was too little for all
        self._retry: dict[QuotaNode, bool] = {}  # roots to look at again in this cycle; whether for reclaim, too
        self._delayed: dict[QuotaNode, int] = {}  # roots with released quota that heads try first; for how many cycles

        self._displaced: dict[QuotaNode, None] = {}  # roots where a preemptor was displaced in this cycle
        self._decided: dict[QuotaNode, None] = {}  # roots where a workload was admitted or evicted in this cycle

    def quota_released(self, root: QuotaNode) -> None:
        self._released[root] = None

    def preemptor_removed(self, root: QuotaNode) -> None:
        """The quota that was freed for it is available to others."""
        self._retry[root] = True

    def preemptor_displaced(self, root: QuotaNode) -> None:
        """Another preemptor gets the quota that was freed for it. Only what is left of that is available to others."""
        self._displaced[root] = None

    def quota_decided(self, root: QuotaNode) -> None:
        """A workload was admitted or evicted in this cycle."""
        self._decided[root] = None

    def head_changed(self, cq: ClusterQueue) -> None:
        """Less quota may be held for the new head of a StrictFIFO queue.

        Those that wait take part in the same cycle as that head, since it may be gone after it.
        """
        if cq.spec.is_strict_fifo and self._preemptors.has_waiting(cq.node.root):
            self._retry[cq.node.root] = True

    def nothing_admitted(self, cq: ClusterQueue) -> None:
        """The free quota does not help this ClusterQueue; it may help a heap that was left out."""
        root = cq.node.root
        if root in self._skipped:
            self._retry.setdefault(root, False)

    def requeue_released(self) -> None:
        """At the start of a cycle.

        As in Kueue, the heads that take part in every cycle try the quota first: those of StrictFIFO queues,
        preemptors, those that wait for preemptors, and new ones.
        """
        for root in self._retry:
            self._activate_waiting(root)
        released, self._released = self._released, {}
        for root in released:
            self._activate_heads(root)
            self._delayed[root] = 0
        self._requeue_delayed()

    def _requeue_delayed(self, promised: Collection[QuotaNode] = ()) -> None:
        for root in list(self._delayed):
            self._delayed[root] += 1
            if self._delayed[root] > _MAX_DELAY or not self._is_active(root):
                del self._delayed[root]
                self._requeue(root, reclaim=True, compare_shares=root not in promised)

    def _activate_heads(self, root: QuotaNode) -> None:
        for cq in self._members_of(root):
            if self._preemptors.pop_due(cq) or (cq.spec.is_strict_fifo and cq.retry_head()):
                self._active[cq.name] = None

    def _activate_waiting(self, root: QuotaNode) -> None:
        """Preemptors, and the heads that need what preemptors or blocked heads get."""
        for cq in self._members_of(root):
            if self._preemptors.pop_due(cq):
                self._active[cq.name] = None

    def _is_active(self, root: QuotaNode) -> bool:
        return any(cq.name in self._active for cq in self._members_of(root))

    def requeue_retries(self, promised: Collection[QuotaNode]) -> None:
        """At the end of a cycle. `promised`: roots under which usage includes what preemptors will get.

        Preemptors that wait for the same evicted workloads may displace each other in every cycle, since each one
        changes the shares by which fair sharing orders them. A cycle that does nothing else is not repeated: the quota
        that the evicted workloads release will activate all that wait for it.
        """
        for root in self._displaced:
            if root in self._decided:
                self._retry[root] = True
        self._displaced, self._decided = {}, {}
        retry, self._retry = self._retry, {}
        for root, reclaim in retry.items():
            self._requeue(root, reclaim=reclaim, compare_shares=root not in promised)
        self._requeue_delayed(promised)

    def clear(self) -> None:
        self._released, self._skipped, self._retry, self._delayed = {}, {}, {}, {}
        self._displaced, self._decided = {}, {}

    def _requeue(self, root: QuotaNode, *, reclaim: bool, compare_shares: bool) -> None:
        members = self._members_of(root)
        if reclaim:
            self._activate_waiting(root)
        shares = ShareComparison(members) if reclaim and compare_shares and self._is_fair else None
        requeued, is_complete = requeue_inadmissible(
            root, [cq for cq in members if cq not in self._preemptors], reclaim=reclaim, shares=shares
        )
        for cq in requeued:
            self._active[cq.name] = None
        if is_complete:
            self._skipped.pop(root, None)
        else:
            self._skipped[root] = None


class _Candidate(NamedTuple):
    borrowing: int
    order: QueueOrder
    cq: ClusterQueue
    heap: PendingHeap
    available: list[FlavorResource]  # empty: it may only reclaim


def requeue_inadmissible(
    root: QuotaNode, cluster_queues: Iterable[ClusterQueue], *, reclaim: bool, shares: ShareComparison | None = None
) -> tuple[list[ClusterQueue], bool]:
    """Make the heaps admissible that the free quota may serve.

    `reclaim`: also those that may reclaim quota, however little is available. `shares`: with fair sharing, those of
    the other ClusterQueues under the root. Returns the ClusterQueues of these heaps, and whether no heap was left out.
    """
    by_queue: list[list[_Candidate]] = []
    at_nodes: dict[tuple[QuotaNode, FlavorResource], int] = {}
    for cq in cluster_queues:
        heaps = [heap for heap in cq.heaps.values() if heap.is_inadmissible and heap.retry_thresholds]
        available_of = {heap: _available_keys(cq.node, heap, at_nodes) for heap in heaps}
        may_reclaim = reclaim and (shares is None or _may_try(cq, available_of, shares))
        candidates: list[_Candidate] = []
        for heap, available in available_of.items():
            if available or (may_reclaim and _may_reclaim(cq, heap)):
                _add_candidate(candidates, cq, heap, available)
        by_queue.append(candidates)
    candidates = _in_order(by_queue)
    free = {key: root.available(key) for candidate in candidates for key in candidate.available}
    requeued: dict[ClusterQueue, None] = {}
    for candidate in candidates:
        # Which heap of a usage-based queue is first depends on its LocalQueue, so all of them are retried.
        if candidate.available and not candidate.cq.spec.is_usage_based and not _take(candidate, free):
            continue
        candidate.heap.is_inadmissible = False
        requeued[candidate.cq] = None
    return list(requeued), len(candidates) <= len(requeued)


def _in_order(by_queue: Iterable[list[_Candidate]]) -> list[_Candidate]:
    """As cycles try them: each takes the next one of every ClusterQueue, those that borrow less first."""
    ranked = (
        (position, candidate)
        for candidates in by_queue
        for position, candidate in enumerate(sorted(candidates, key=lambda candidate: candidate.order))
    )
    return [candidate for _, candidate in sorted(ranked, key=lambda entry: (entry[0], *entry[1][:2]))]


def _available_keys(
    node: QuotaNode, heap: PendingHeap, at_nodes: dict[tuple[QuotaNode, FlavorResource], int]
) -> list[FlavorResource]:
    return [key for key, need in heap.retry_thresholds.items() if _available(node, key, at_nodes) >= need]


def _available(node: QuotaNode, key: FlavorResource, at_nodes: dict[tuple[QuotaNode, FlavorResource], int]) -> int:
    """What is available at a node. `at_nodes` keeps it: heaps share ClusterQueues, and those share cohorts."""
    available = at_nodes.get((node, key))
    if available is None:
        from_parent = 0 if node.parent is None else _available(node.parent, key, at_nodes)
        available = at_nodes[node, key] = node.available_with(key, from_parent)
    return available


def _add_candidate(
    candidates: list[_Candidate], cq: ClusterQueue, heap: PendingHeap, available: list[FlavorResource]
) -> None:
    head = heap.head
    if head is not None:
        request = heap.assigner.fixed_request
        if request is None:
            request = {key: heap.retry_thresholds[key] for key in available}
        borrowing = borrowing_height(cq.node, request) if available else 0
        candidates.append(_Candidate(borrowing, head.order, cq, heap, available))


def _may_reclaim(cq: ClusterQueue, heap: PendingHeap) -> bool:
    policy = cq.spec.preemption
    if policy.reclaim_within_cohort == names.NEVER or cq.node.parent is None:
        return False
    # While it borrows less than all cohorts above it have, it has an advantage over others that borrow more.
    return any(
        lowest_subtree(cq.node, key, need).parent is not None or policy.may_preempt_while_borrowing
        for key, need in heap.retry_thresholds.items()
    )


def _may_try(cq: ClusterQueue, heaps: Mapping[PendingHeap, list[FlavorResource]], shares: ShareComparison) -> bool:
    """With fair sharing: False if no heap of a queue can be served or preempt, so that all would be tried in vain.

    Otherwise all are tried, because the first one decides what the queue does in a cycle. The head of a queue that may
    reclaim from lower priorities only keeps others from quota while it is tried, so it is tried in any case.
    """
    if cq.spec.preemption.reclaim_within_cohort != names.ANY or any(heaps.values()) or cq.head() is not None:
        return True
    return any(_may_preempt_in_queue(cq, heap) or _may_preempt_fairly(cq, heap, shares) for heap in heaps)


def _may_preempt_in_queue(cq: ClusterQueue, heap: PendingHeap) -> bool:
    """Whether the queue has workloads that may be preempted for the head of a heap, or that may be newer."""
    policy, head = cq.spec.preemption.within_cluster_queue, heap.head
    if policy == names.NEVER or head is None:
        return False
    below = head.priority + 1 if policy == names.LOWER_OR_NEWER else head.priority
    return any(info.priority < below for info in cq.reserving.values())


def _may_preempt_fairly(cq: ClusterQueue, heap: PendingHeap, shares: ShareComparison) -> bool:
    """For the least amount: what the thresholds say may be more than the head requests in one of its flavors."""
    head = heap.head
    if head is None:
        return False
    is_slice = head.replaces is not None  # it needs only what it requests beyond the slice that it replaces
    least = {key: 1 if is_slice else head.requirements.least_request(key[1]) for key in heap.retry_thresholds}
    return any(shares.may_preempt(cq.node, {key: amount}, (key,)) for key, amount in least.items())


def _take(candidate: _Candidate, free: FlavorResourceQuantities) -> bool:
    """Whether enough is left for it after the candidates before it."""
    node, is_served = candidate.cq.node, False
    for key in candidate.available:
        left = free[key]
        from_root = needed_from_root(node, key, candidate.heap.retry_thresholds[key])
        if from_root <= left:
            free[key] = left - from_root
            is_served = True
    return is_served
