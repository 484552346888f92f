"""Which workloads to preempt with fair sharing: those of the queues that have more than their share.

At each cohort from the root down, the child with the largest dominant resource share is next, as long as it borrows. A
workload of another ClusterQueue may be preempted if

- the preemptor stays within the quota of its own queue: then it reclaims what is its own;
- the share of the preemptor's subtree, with its workload, is at most that of the other one without the candidate
  (`LessThanOrEqualToFinalShare`);
- or, if that did not suffice, it is less than that of the other one as it is now (`LessThanInitialShare`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torchyard.api.queue import messages
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import DominantResourceShare, dominant_resource_share
from torchyard.core.queue.quota import NodeUsage, QuotaNode, simulate_addition, simulate_removal
from torchyard.core.queue.resources import FlavorResource
from torchyard.core.queue.settings import FINAL_SHARE, FairSharing
from torchyard.core.queue.workload_info import Key, WorkloadInfo

_CandidateOrder = tuple[bool, int, float, float, Key]
_NO_SHARE = (-1.0, 0.0)  # less than that of any node


class FairCandidates:
    """The candidates of each ClusterQueue, and which queue is the next to lose one.

    A queue that was returned must lose a candidate or be dropped before the next one is asked for.
    """

    def __init__(self, preemptor: QuotaNode, candidates: Mapping[ClusterQueue, Iterable[WorkloadInfo]]) -> None:
        self._preemptor = preemptor
        self._path = set(_path(preemptor))
        self._queues = {cq.node: cq for cq in candidates}
        self._candidates = {cq.node: _in_order(cq, infos) for cq, infos in candidates.items()}
        self._children: dict[QuotaNode, dict[QuotaNode, None]] = {}
        self._dropped: set[QuotaNode] = set()
        for leaf in self._queues:
            node = leaf
            while node.parent is not None:
                self._children.setdefault(node.parent, {})[node] = None
                node = node.parent

    def queues(self) -> Iterator[ClusterQueue]:
        root = self._preemptor.root
        while root not in self._dropped:
            node = self._next(root)
            if node is not None:
                yield self._queues[node]

    def pop(self, cq: ClusterQueue) -> WorkloadInfo | None:
        candidates = self._candidates[cq.node]
        return candidates.pop(0) if candidates else None

    def drop(self, cq: ClusterQueue) -> None:
        self._dropped.add(cq.node)

    def _next(self, node: QuotaNode) -> QuotaNode | None:
        """The ClusterQueue under a node that is the next to lose a workload; None if only nodes were dropped."""
        if node in self._queues:
            if self._candidates[node]:
                return node
            self._dropped.add(node)
            return None
        shares: dict[QuotaNode, DominantResourceShare] = {}
        for child in self._children.get(node, ()):
            if child not in self._dropped:
                share = dominant_resource_share(child)
                is_on_path = child in self._path  # there, a part below may have more than its share
                if (share.is_zero and not is_on_path) or (child in self._queues and not self._candidates[child]):
                    self._dropped.add(child)
                else:
                    shares[child] = share
        if not shares:
            self._dropped.add(node)
            return None
        largest = max(share.order for share in shares.values())
        return self._next(self._preferred([child for child, share in shares.items() if share.order == largest]))

    def _preferred(self, nodes: list[QuotaNode]) -> QuotaNode:
        """Of several with the same share, a cohort; otherwise the queue with the candidate that would be first."""
        cohort = next((node for node in reversed(nodes) if node not in self._queues), None)
        return cohort if cohort is not None else min(nodes, key=self._order_of_queue)

    def _order_of_queue(self, node: QuotaNode) -> tuple[bool, bool, _CandidateOrder]:
        order = candidate_order(self._candidates[node][0])
        return order[0], node is self._preemptor, order


class ShareComparison:
    """Whether a workload could preempt any other by shares: most cannot, and then no search is needed.

    Computed once for all nominations of a scheduling cycle. The usage must not change meanwhile, except at the
    preemptor and above it.
    """

    def __init__(self, cluster_queues: Iterable[ClusterQueue]) -> None:
        """`cluster_queues`: all under one root."""
        self._children: dict[QuotaNode, dict[QuotaNode, None]] = {}
        self._shares: dict[QuotaNode, tuple[float, float]] = {}
        for cq in cluster_queues:
            node = cq.node
            if cq.inactive is not None or not cq.reserving:
                continue  # nothing to preempt
            while node.parent is not None and node not in self._children.get(node.parent, ()):
                self._children.setdefault(node.parent, {})[node] = None
                node = node.parent

    def may_preempt(
        self, preemptor: QuotaNode, usage: Mapping[FlavorResource, int], keys: Iterable[FlavorResource]
    ) -> bool:
        """False if every other part of the tree has a smaller share than the part of the preemptor beside it.

        A preemption only lowers the shares of the others, so the first one would not be allowed, by any strategy.
        """
        with simulate_addition([NodeUsage(preemptor, dict(usage))]):
            if not preemptor.is_borrowing_any(keys):
                return True
            return any(
                dominant_resource_share(node).order <= self._largest_beside(node)
                for node in _path(preemptor)
                if node.parent is not None
            )

    def _largest_beside(self, node: QuotaNode) -> tuple[float, float]:
        """The largest share of the other children of its parent."""
        others = self._children.get(node.parent, {}) if node.parent is not None else {}
        return max((self._share(child) for child in others if child is not node), default=_NO_SHARE)

    def _share(self, node: QuotaNode) -> tuple[float, float]:
        share = self._shares.get(node)
        if share is None:
            share = self._shares[node] = dominant_resource_share(node).order
        return share


class FairTargetSearch:
    """`usage`: what the preemptor requests. `keys`: of these, what needs preemption."""

    def __init__(
        self,
        settings: FairSharing,
        node: QuotaNode,
        usage: Mapping[FlavorResource, int],
        keys: frozenset[FlavorResource],
        candidates: Mapping[ClusterQueue, Iterable[WorkloadInfo]],
    ) -> None:
        self._settings, self._node, self._keys, self._candidates = settings, node, keys, candidates
        self._request = [NodeUsage(node, dict(usage))]
        self._retry: dict[ClusterQueue, list[WorkloadInfo]] = {}

    def targets(self) -> Iterator[tuple[WorkloadInfo, ClusterQueue, str]]:
        """Candidates that may be preempted, with the reason, in order. Each is removed before it is returned.

        The caller adds their usage back when the search is over.
        """
        yield from self._first_strategy()
        if len(self._settings.strategies) > 1:
            yield from self._initial_share_strategy()

    def _first_strategy(self) -> Iterator[tuple[WorkloadInfo, ClusterQueue, str]]:
        with simulate_addition(self._request):
            is_within_quota = not self._node.is_borrowing_any(self._keys)
        candidates = FairCandidates(self._node, self._candidates)
        for cq in self._queues(candidates):
            while (info := candidates.pop(cq)) is not None:
                reason = messages.REASON_IN_COHORT_RECLAMATION
                if cq.node is self._node:
                    reason = messages.REASON_IN_CLUSTER_QUEUE
                elif not is_within_quota:
                    reason = messages.REASON_IN_COHORT_FAIR_SHARING
                    if not self._passes(cq, info):
                        self._retry.setdefault(cq, []).append(info)
                        continue
                cq.node.remove_usage(info.usage)
                yield info, cq, reason
                break  # another queue may have the largest share now

    def _initial_share_strategy(self) -> Iterator[tuple[WorkloadInfo, ClusterQueue, str]]:
        candidates = FairCandidates(self._node, self._retry)
        for cq in self._queues(candidates):
            info = candidates.pop(cq)
            preemptor, target = self._shares(cq)
            if info is not None and preemptor.order < target.order:
                cq.node.remove_usage(info.usage)
                yield info, cq, messages.REASON_IN_COHORT_FAIR_SHARING
            candidates.drop(cq)

    def _queues(self, candidates: FairCandidates) -> Iterator[ClusterQueue]:
        """The next queue, with the request counted while it is chosen."""
        queues = candidates.queues()
        while True:
            with simulate_addition(self._request):
                cq = next(queues, None)
            if cq is None:
                return
            yield cq

    def _passes(self, cq: ClusterQueue, info: WorkloadInfo) -> bool:
        preemptor, target = self._shares(cq)
        if self._settings.strategies[0] != FINAL_SHARE:
            return preemptor.order < target.order
        with simulate_removal([NodeUsage(cq.node, info.usage)]):
            _, final = self._shares(cq)
        return preemptor.order <= final.order

    def _shares(self, cq: ClusterQueue) -> tuple[DominantResourceShare, DominantResourceShare]:
        """The shares of the preemptor and of a queue, each of the subtree below their lowest common cohort."""
        mine, others = _path(self._node), _path(cq.node)
        while len(mine) > 1 and len(others) > 1 and mine[-2] is others[-2]:
            mine.pop()
            others.pop()
        with simulate_addition(self._request):
            return dominant_resource_share(mine[-2]), dominant_resource_share(others[-2])


def _in_order(cq: ClusterQueue, infos: Iterable[WorkloadInfo]) -> list[WorkloadInfo]:
    """With usage-based order, LocalQueues that consumed more lose their workloads first."""
    return sorted(infos, key=lambda info: (not info.is_evicted, -cq.consumed_by(info), candidate_order(info)))


def candidate_order(info: WorkloadInfo) -> _CandidateOrder:
    """Evicted ones first, then low priorities, then the most recently admitted."""
    return not info.is_evicted, info.priority, -info.reserved_at, -info.queued_at, info.key


def _path(node: QuotaNode) -> list[QuotaNode]:
    """The node and all above it, up to the root."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    return path
