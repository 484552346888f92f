"""Which workloads to preempt so that another fits: Kueue's classic preemption in a tree of cohorts.

Candidates are removed one by one until the workload fits. Afterwards each one that turns out not to be needed is added
back. In the order of preference, candidates are

- workloads of other ClusterQueues that use quota of a subtree in which the workload would not borrow. It has a
  hierarchical advantage over them;
- workloads of other ClusterQueues that borrow. It may preempt them without borrowing itself, or while it borrows if the
  policy allows that for their priority;
- workloads of its own ClusterQueue.

Among them, those that are evicted already are first, then low priorities, then the most recently admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from torchyard.api.queue import messages, names
from torchyard.core.queue.borrowing import fits_in_quota
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.fair_preemption import FairTargetSearch, ShareComparison
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.minimal_targets import MinimalTargets, PreemptionTarget
from torchyard.core.queue.quota import NodeUsage, QuotaNode, simulate_addition, simulate_removal
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities
from torchyard.core.queue.settings import FairSharing
from torchyard.core.queue.workload_info import Key, WorkloadInfo


class PreemptionSearch(NamedTuple):
    targets: list[PreemptionTarget]  # empty if no preemption that is allowed helps
    shortage: FlavorResourceQuantities  # what is missing then, even without all workloads that may be preempted


class _Candidate(NamedTuple):
    info: WorkloadInfo
    cq: ClusterQueue


_Resources = frozenset[FlavorResource]


class ReclaimCandidates:
    """The workloads of ClusterQueues that borrow, computed once for all nominations of a scheduling cycle.

    Otherwise a cohort of a hundred ClusterQueues would collect and sort them a hundred times. The usage must not change
    between two calls, except inside a simulation.
    """

    def __init__(self, members: Callable[[ClusterQueue], Iterable[ClusterQueue]]) -> None:
        self._members = members
        self._candidates: dict[tuple[QuotaNode, _Resources], dict[bool, list[_Candidate]]] = {}
        self._shares: dict[QuotaNode, ShareComparison] = {}

    def outside(
        self, cq: ClusterQueue, keys: _Resources, *, below: int | None, is_evicted: bool
    ) -> Iterator[_Candidate]:
        """Those of the other ClusterQueues under the root, evicted or not, with a priority less than `below`."""
        cache_key = cq.node.root, keys
        if cache_key not in self._candidates:
            self._candidates[cache_key] = self._collect(cq, keys)
        for candidate in self._candidates[cache_key][is_evicted]:
            if below is not None and candidate.info.priority >= below:
                return
            if candidate.cq is not cq:
                yield candidate

    def may_preempt_fairly(self, cq: ClusterQueue, usage: FlavorResourceQuantities, keys: _Resources) -> bool:
        """Whether the shares let a workload of a queue preempt any workload of the other queues."""
        root = cq.node.root
        if root not in self._shares:
            self._shares[root] = ShareComparison(self._members(cq))
        return self._shares[root].may_preempt(cq.node, usage, keys)

    def evicted(self, cq: ClusterQueue) -> list[_Candidate]:
        """All workloads under the root of a queue that are evicted and hold their quota still."""
        reserving = ((info, member) for member in self._members(cq) for info in member.reserving.values())
        return [_Candidate(info, member) for info, member in reserving if info.is_evicted]

    def _collect(self, cq: ClusterQueue, keys: _Resources) -> dict[bool, list[_Candidate]]:
        """By whether they are evicted, in order."""
        by_evicted: dict[bool, list[_Candidate]] = {True: [], False: []}
        for member in self._members(cq):
            if member.inactive is not None:
                continue  # as in Kueue, whose snapshot has only the active ones
            # The workloads of `cq` itself are candidates for the other queues. They are always included, because a
            # simulation may be going on that hides that it borrows.
            if member is cq or member.node.is_borrowing_any(keys):
                for info in member.reserving.values():
                    if not keys.isdisjoint(info.usage):
                        by_evicted[info.is_evicted].append(_Candidate(info, member))
        for candidates in by_evicted.values():
            candidates.sort(key=_candidate_order)
        return by_evicted


def find_targets(
    info: WorkloadInfo,
    cq: ClusterQueue,
    assignment: Assignment,
    candidates: ReclaimCandidates,
    fair_sharing: FairSharing | None = None,
) -> PreemptionSearch:
    """The workloads to preempt. The quotas are unchanged afterwards."""
    search = _TargetSearch(info, cq, assignment, candidates)
    if fair_sharing is not None:
        return PreemptionSearch(search.fair_targets(fair_sharing), search.shortage)
    for may_borrow in search.attempts():
        targets = search.minimal_targets(may_borrow=may_borrow)
        if targets:
            return PreemptionSearch(targets, {})
    return PreemptionSearch([], search.shortage)


def wait_for_evicted(cq: ClusterQueue, assignment: Assignment, candidates: ReclaimCandidates) -> list[PreemptionTarget]:
    """The workloads that are evicted already, if the assignment fits without them."""
    evicted = candidates.evicted(cq)
    with simulate_removal([NodeUsage(candidate.cq.node, candidate.info.usage) for candidate in evicted]):
        if any(amount > cq.node.available(key) for key, amount in assignment.usage.items()):
            return []
    return [PreemptionTarget(candidate.info, messages.REASON_IN_COHORT_RECLAMATION) for candidate in evicted]


class _TargetSearch:
    def __init__(
        self, info: WorkloadInfo, cq: ClusterQueue, assignment: Assignment, candidates: ReclaimCandidates
    ) -> None:
        self._info, self._cq, self._usage = info, cq, assignment.usage
        self._keys = frozenset(assignment.need_preemption)
        self._policy = cq.spec.preemption
        self._candidates = candidates
        # With usage-based order, LocalQueues that consumed more lose their workloads first.
        self._own = sorted(
            self._own_candidates(),
            key=lambda candidate: (-cq.consumed_by(candidate.info), _candidate_order(candidate)),
        )
        self._has_advantage: dict[QuotaNode, bool] = {}
        self._common: dict[ClusterQueue, QuotaNode] = {}
        self._minimal = MinimalTargets(cq.node, assignment.usage)

    @property
    def shortage(self) -> FlavorResourceQuantities:
        return self._minimal.shortage

    def attempts(self) -> list[bool]:
        """Whether it may borrow, in the order in which to try it. Without fair sharing, and before all else."""
        self._has_advantage = self._advantages()
        if self._info.lost_borrowed_quota and self._info.has_preempted_often:
            return [False]  # Kueue lets it borrow again, be reclaimed again and preempt again, without end.
        is_forbidden = not self._policy.borrow_within_cohort
        node = self._cq.node
        is_under_nominal = all(node.usage.get(key, 0) < node.nominal(key) for key in self._keys)
        if (is_forbidden and not is_under_nominal) or not self._has_outside((True, False)):
            return [True]
        if is_forbidden and not self._has_outside((True,)):
            return [False, True]
        return [True, False]

    def minimal_targets(self, *, may_borrow: bool) -> list[PreemptionTarget]:
        return self._minimal.find(self._removed(may_borrow=may_borrow), may_borrow=may_borrow)

    def fair_targets(self, settings: FairSharing) -> list[PreemptionTarget]:
        """By dominant resource shares."""
        if not self._own and not self._candidates.may_preempt_fairly(self._cq, self._usage, self._keys):
            return self._minimal.find(iter(()), may_borrow=True)
        candidates: dict[ClusterQueue, list[WorkloadInfo]] = {}
        for candidate in (*self._own, *self._reclaimable()):
            candidates.setdefault(candidate.cq, []).append(candidate.info)
        search = FairTargetSearch(settings, self._cq.node, self._usage, self._keys, candidates)
        removed = ((PreemptionTarget(info, reason), cq) for info, cq, reason in search.targets())
        return self._minimal.find(removed, may_borrow=True)

    def _reclaimable(self) -> Iterator[_Candidate]:
        """The workloads of other ClusterQueues that borrow, which the policy lets it preempt."""
        if self._policy.reclaim_within_cohort == names.NEVER or self._cq.node.parent is None:
            return
        if (
            self._info.lost_borrowed_quota
            and self._info.has_preempted_often
            and _would_borrow(self._cq.node, self._usage, self._keys)
        ):
            return  # otherwise both preempt each other in turn, without end
        below = None if self._policy.reclaim_within_cohort == names.ANY else self._info.priority
        for is_evicted in (True, False):
            for candidate in self._candidates.outside(self._cq, self._keys, below=below, is_evicted=is_evicted):
                if candidate.cq.node.is_borrowing_any(self._keys):
                    yield candidate

    def _removed(self, *, may_borrow: bool) -> Iterator[tuple[PreemptionTarget, ClusterQueue]]:
        for info, cq in self._ordered(may_borrow=may_borrow):
            cq.node.remove_usage(info.usage)
            yield PreemptionTarget(info, self._reason(info, cq)), cq

    def _own_candidates(self) -> Iterator[_Candidate]:
        policy, info = self._policy.within_cluster_queue, self._info
        if policy == names.NEVER:
            return
        for candidate in self._cq.reserving.values():
            if candidate.priority == info.priority:
                is_preemptible = policy == names.LOWER_OR_NEWER and candidate.queued_at > info.queued_at
            else:
                is_preemptible = candidate.priority < info.priority
            if is_preemptible and candidate.key != info.replaces and not self._keys.isdisjoint(candidate.usage):
                yield _Candidate(candidate, self._cq)

    def _advantages(self) -> dict[QuotaNode, bool]:
        """The cohorts above it, each with whether a subtree of it has all that is requested unused."""
        advantages: dict[QuotaNode, bool] = {}
        if self._policy.reclaim_within_cohort == names.NEVER:
            return advantages
        has_advantage, remaining = fits_in_quota(self._cq.node, self._usage)
        node = self._cq.node.parent
        while node is not None:
            advantages[node] = has_advantage
            fits, remaining = fits_in_quota(node, remaining)
            has_advantage = has_advantage or fits
            node = node.parent
        return advantages

    def _has_outside(self, advantages: Iterable[bool]) -> bool:
        return any(
            True
            for is_evicted in (True, False)
            for has_advantage in advantages
            for _ in self._outside(has_advantage, is_evicted=is_evicted, may_borrow=False)
        )

    def _ordered(self, *, may_borrow: bool) -> Iterator[_Candidate]:
        """The candidates in order. Those whose queue or cohort does not borrow any more are left out."""
        for is_evicted in (True, False):
            for has_advantage in (True, False):
                yield from self._outside(has_advantage, is_evicted=is_evicted, may_borrow=may_borrow)
            yield from (candidate for candidate in self._own if candidate.info.is_evicted is is_evicted)

    def _outside(self, has_advantage: bool, *, is_evicted: bool, may_borrow: bool) -> Iterator[_Candidate]:
        if has_advantage not in self._has_advantage.values():
            return
        below = None if self._policy.reclaim_within_cohort == names.ANY else self._info.priority
        for candidate in self._candidates.outside(self._cq, self._keys, below=below, is_evicted=is_evicted):
            common = self._common_cohort(candidate.cq)
            is_allowed = has_advantage or not may_borrow or self._is_below_threshold(candidate.info)
            if (
                is_allowed
                and self._has_advantage[common] is has_advantage
                and _is_borrowing(candidate.cq, common, self._keys)
            ):
                yield candidate

    def _common_cohort(self, cq: ClusterQueue) -> QuotaNode:
        """The lowest cohort above both queues."""
        common = self._common.get(cq)
        if common is None:
            node = cq.node
            while node not in self._has_advantage and node.parent is not None:
                node = node.parent
            common = self._common[cq] = node
        return common

    def _is_below_threshold(self, candidate: WorkloadInfo) -> bool:
        """Whether it may be preempted in another queue while this workload borrows."""
        if not self._policy.borrow_within_cohort or candidate.priority >= self._info.priority:
            return False
        threshold = self._policy.max_priority_threshold
        return threshold is None or candidate.priority <= threshold

    def _reason(self, candidate: WorkloadInfo, cq: ClusterQueue) -> str:
        if cq is self._cq:
            return messages.REASON_IN_CLUSTER_QUEUE
        if not self._has_advantage[self._common_cohort(cq)] and self._is_below_threshold(candidate):
            return messages.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING
        return messages.REASON_IN_COHORT_RECLAMATION


def _would_borrow(node: QuotaNode, usage: FlavorResourceQuantities, keys: _Resources) -> bool:
    """Whether a workload uses more than the quota of its ClusterQueue, which it may reclaim whenever it needs it."""
    with simulate_addition([NodeUsage(node, dict(usage))]):
        return node.is_borrowing_any(keys)


def _is_borrowing(cq: ClusterQueue, common: QuotaNode, keys: _Resources) -> bool:
    """Whether a queue borrows, and every cohort between it and the common one, too."""
    node: QuotaNode | None = cq.node
    while node is not None and node is not common:
        if not node.is_borrowing_any(keys):
            return False
        node = node.parent
    return True


def _candidate_order(candidate: _Candidate) -> tuple[int, float, float, Key]:
    """Times of reservations have whole seconds once they are written; within a second the newer workload is first."""
    info, _ = candidate
    return info.priority, -info.reserved_at, -info.queued_at, info.key
