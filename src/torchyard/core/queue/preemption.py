"""Which workloads to preempt so that another fits: Kueue's classic preemption.

Candidates are removed one by one until the workload fits: first those of ClusterQueues that borrow, then by low
priority, then the most recently admitted. Afterwards each one that turns out not to be needed is added back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class PreemptionTarget(NamedTuple):
    info: WorkloadInfo
    reason: str


_Candidate = tuple[WorkloadInfo, ClusterQueue]
_Resources = frozenset[FlavorResource]


class ReclaimCandidates:
    """The workloads that use borrowed quota, computed once for all nominations of a scheduling cycle.

    Otherwise a cohort of a hundred ClusterQueues would collect and sort them a hundred times. The usage must not change
    between two calls, except inside a simulation.
    """

    def __init__(self, members: Callable[[ClusterQueue], Iterable[ClusterQueue]]) -> None:
        self._members = members
        self._candidates: dict[tuple[QuotaNode, _Resources], list[_Candidate]] = {}

    def outside(self, cq: ClusterQueue, keys: _Resources, *, below: int | None) -> Iterator[_Candidate]:
        """The candidates in the other ClusterQueues of the cohort with a priority less than `below`, in order."""
        cache_key = cq.node.root, keys
        if cache_key not in self._candidates:
            # The workloads of `cq` itself are candidates for the other queues. They are always included, because a
            # simulation may be going on that hides that it borrows.
            borrowing = (
                member
                for member in self._members(cq)
                if member is cq or any(member.node.is_borrowing(key) for key in keys)
            )
            self._candidates[cache_key] = sorted(
                (
                    (info, member)
                    for member in borrowing
                    for info in member.reserving.values()
                    if not keys.isdisjoint(info.usage)
                ),
                key=_candidate_order,
            )
        for info, member in self._candidates[cache_key]:
            if below is not None and info.priority >= below:
                if not info.is_evicted:
                    return
            elif member is not cq and _uses_borrowed(info, member, keys):
                yield info, member


def find_targets(
    info: WorkloadInfo, cq: ClusterQueue, assignment: Assignment, candidates: ReclaimCandidates
) -> list[PreemptionTarget]:
    """The workloads to preempt; empty if no preemption that is allowed helps. The quotas are unchanged afterwards."""
    keys = frozenset(assignment.need_preemption)
    policy = cq.spec.preemption
    own = sorted(_own_candidates(info, cq, keys), key=_candidate_order)
    # Kueue would let it borrow again, be reclaimed again and preempt again, without end.
    may_borrow = not info.lost_borrowed_quota
    search = _TargetSearch(cq, assignment.usage, keys)
    is_under_nominal = all(cq.node.usage.get(key, 0) < cq.node.nominal(key) for key in keys)
    below = None if policy.reclaim_within_cohort == names.ANY else info.priority
    # A queue that already uses its nominal quota reclaims nothing, unless it may preempt while it borrows.
    may_reclaim = policy.reclaim_within_cohort != names.NEVER and (is_under_nominal or policy.borrow_within_cohort)
    if not may_reclaim or next(candidates.outside(cq, keys, below=below), None) is None:
        return search.minimal_targets(own, may_borrow=may_borrow)
    if policy.borrow_within_cohort:
        threshold = info.priority
        if policy.max_priority_threshold is not None and policy.max_priority_threshold < threshold:
            threshold = policy.max_priority_threshold + 1
        if not is_under_nominal:
            below = threshold
        merged = _merge_candidates(candidates.outside(cq, keys, below=below), own, cq)
        return search.minimal_targets(merged, may_borrow=may_borrow, borrow_below=threshold)
    merged = _merge_candidates(candidates.outside(cq, keys, below=below), own, cq)
    targets = search.minimal_targets(merged, may_borrow=False)
    return targets or search.minimal_targets(own, may_borrow=may_borrow)


def _own_candidates(info: WorkloadInfo, cq: ClusterQueue, keys: _Resources) -> Iterator[_Candidate]:
    policy = cq.spec.preemption.within_cluster_queue
    if policy == names.NEVER:
        return
    is_preemptible = _priority_filter(info, newer_equal=policy == names.LOWER_OR_NEWER)
    for candidate in cq.reserving.values():
        is_replaced = candidate.key == info.replaces
        if not is_replaced and is_preemptible(candidate) and not keys.isdisjoint(candidate.usage):
            yield candidate, cq


def _merge_candidates(outside: Iterator[_Candidate], own: list[_Candidate], cq: ClusterQueue) -> Iterable[_Candidate]:
    """Evicted ones first; among the evicted and among the rest, those of other ClusterQueues first."""
    if not own:
        return outside
    return merge(outside, own, key=lambda candidate: (not candidate[0].is_evicted, candidate[1] is cq))


def _uses_borrowed(info: WorkloadInfo, cq: ClusterQueue, keys: _Resources) -> bool:
    """Whether the workload itself uses a resource that is needed and that its ClusterQueue borrows.

    Kueue only asks whether the ClusterQueue borrows any of them, and then also preempts workloads that use another.
    """
    return any(key in keys and cq.node.is_borrowing(key) for key in info.usage)


def _priority_filter(info: WorkloadInfo, *, newer_equal: bool) -> Callable[[WorkloadInfo], bool]:
    def is_preemptible(candidate: WorkloadInfo) -> bool:
        if candidate.priority != info.priority:
            return candidate.priority < info.priority
        return newer_equal and candidate.queued_at > info.queued_at

    return is_preemptible


def _candidate_order(candidate: _Candidate) -> tuple[bool, int, float, float, Key]:
    """Times of reservations have whole seconds once they are written; within a second the newer workload is first."""
    info, _ = candidate
    return not info.is_evicted, info.priority, -info.reserved_at, -info.queued_at, info.key


class _TargetSearch:
    def __init__(self, cq: ClusterQueue, usage: FlavorResourceQuantities, keys: _Resources) -> None:
        self._cq, self._usage, self._keys = cq, usage, keys

    def minimal_targets(
        self, candidates: Iterable[_Candidate], *, may_borrow: bool, borrow_below: int | None = None
    ) -> list[PreemptionTarget]:
        """`borrow_below`: while it borrows, it may preempt in other queues only workloads of a lower priority."""
        removed: list[tuple[PreemptionTarget, ClusterQueue]] = []
        fits = False
        for info, cq in candidates:
            reason = messages.REASON_IN_CLUSTER_QUEUE
            if cq is not self._cq:
                if not _uses_borrowed(info, cq, self._keys):
                    continue
                reason = messages.REASON_IN_COHORT_RECLAMATION
                if borrow_below is not None and info.priority >= borrow_below:
                    may_borrow = False
                elif borrow_below is not None:
                    reason = messages.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING
            cq.node.remove_usage(info.usage)
            removed.append((PreemptionTarget(info, reason), cq))
            if self._fits(may_borrow=may_borrow):
                fits = True
                break
        needed = self._fill_back(removed, may_borrow=may_borrow) if fits else removed
        for target, cq in needed:
            cq.node.add_usage(target.info.usage)
        return [target for target, _ in needed] if fits else []

    def _fill_back(
        self, removed: list[tuple[PreemptionTarget, ClusterQueue]], *, may_borrow: bool
    ) -> list[tuple[PreemptionTarget, ClusterQueue]]:
        """Add back those without which it fits, too; the rest is needed."""
        needed = list(removed)
        for index in range(len(needed) - 2, -1, -1):
            target, cq = needed[index]
            cq.node.add_usage(target.info.usage)
            if self._fits(may_borrow=may_borrow):
                del needed[index]
            else:
                cq.node.remove_usage(target.info.usage)
        return needed

    def _fits(self, *, may_borrow: bool) -> bool:
        node = self._cq.node
        for key, amount in self._usage.items():
            if amount > node.available(key):
                return False
            if not may_borrow and node.usage.get(key, 0) + amount > node.nominal(key):
                return False
        return True
