"""One scheduling cycle: nominate the head of every active ClusterQueue, then admit or preempt in a fair order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api.queue import messages, names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap, QueueHead
from torchyard.core.queue.flavor_assigner import (
    Assignment,
    FlavorAssignmentMode,
    PreemptionOracle,
    PreemptionPossibility,
    SimulatedPreemption,
)
from torchyard.core.queue.nomination import NominatedWorkload, replaced_slice, without_replaced
from torchyard.core.queue.preemption import PreemptionTarget, find_targets
from torchyard.core.queue.quota import NodeUsage, simulate_removal
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities
from torchyard.core.queue.snapshot import QuotaSnapshot
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import Key, WorkloadInfo


@dataclass(frozen=True)
class Admit:
    info: WorkloadInfo
    cluster_queue: str
    assignment: Assignment
    replaced: WorkloadInfo | None = None  # the slice whose quota it takes over


@dataclass(frozen=True)
class Preempt:
    """Evict the targets; the preemptor waits until they have released their quota."""

    info: WorkloadInfo
    cluster_queue: str
    targets: list[PreemptionTarget]
    target_paths: dict[Key, str]  # in the hierarchy of cohorts
    path: str


@dataclass(frozen=True)
class StayPending:
    """The workload, and those behind it in its heap."""

    info: WorkloadInfo
    heap: PendingHeap
    why: ReasonMessage


@dataclass(frozen=True)
class SchedulingFailure:
    """A ClusterQueue whose head could not be scheduled because of an unexpected exception. It waits for a change."""

    cluster_queue: str
    error: Exception


SchedulingDecision = Admit | Preempt | StayPending | SchedulingFailure


def schedule(state: QueueState, now: float) -> list[SchedulingDecision]:
    """Run one cycle. It counts quota at once, before it is written. Call again while `pending.active` has any."""
    state.refresh()
    with QuotaSnapshot(state.cache) as snapshot:
        return SchedulingCycle(state, snapshot, now).run()


class SchedulingCycle:
    def __init__(self, state: QueueState, snapshot: QuotaSnapshot, now: float) -> None:
        self._state, self._cache, self._pending = state, state.cache, state.pending
        self._snapshot, self._now = snapshot, now
        self._decisions: list[SchedulingDecision] = []

    def run(self) -> list[SchedulingDecision]:
        nominated = self._nominate_heads()
        preemptors = self._pending.preemptors.under({entry.cq.node.root for entry in nominated})
        targeted = {key for entry in preemptors for key in entry.target_keys}
        for entry in sorted([*nominated, *preemptors], key=lambda entry: entry.order):
            try:
                self._process(entry, targeted)
            except Exception as error:  # what was decided for the other queues is already counted, and must be written
                self._fail(entry.cq, error)
        self._pending.requeuer.requeue_retries()
        return self._decisions

    def _nominate_heads(self) -> list[NominatedWorkload]:
        nominated: list[NominatedWorkload] = []
        for name in sorted(self._pending.active):
            cq = self._cache.cluster_queues.get(name)
            if cq is None:
                del self._pending.active[name]
                continue
            try:
                entry = self._nominate(cq)
            except Exception as error:
                self._fail(cq, error)
                continue
            if entry is not None:
                nominated.append(entry)
        return nominated

    def _fail(self, cq: ClusterQueue, error: Exception) -> None:
        self._pending.park(cq)
        self._decisions.append(SchedulingFailure(cq.name, error))

    def _process(self, entry: NominatedWorkload, targeted: set[Key]) -> None:
        snapshot = self._snapshot
        if self._pending.preemptors.has(entry):
            snapshot.promise(entry)
        elif not targeted.isdisjoint(entry.target_keys):
            self._wait_for_preemptors(entry, messages.OVERLAPPING_TARGETS)
        elif not snapshot.fits(entry):
            # Otherwise another workload was admitted in this cycle, and this one stays active for the next.
            if snapshot.fits_without_promises(entry):
                self._wait_for_preemptors(entry, messages.NO_LONGER_FITS)
        elif (held := self._quota_held_from(entry)) and not snapshot.fits(entry, held.values()):
            self._block_borrowing(entry)
        elif entry.targets:
            targeted.update(entry.target_keys)
            self._preempt(entry)
            self._pending.add_preemptor(entry)
            snapshot.promise(entry)
        elif self._cache.is_admission_blocked:
            self._pending.wait_for_pods_ready(entry.cq)
            why = ReasonMessage(messages.REASON_WAITING_FOR_PODS_READY, messages.WAITING_FOR_ALL_PODS_READY)
            self._decisions.append(StayPending(entry.info, entry.heap, why))
        else:
            self._admit(entry)

    def _nominate(self, cq: ClusterQueue) -> NominatedWorkload | None:
        """The first workload that fits, with or without preemption. The heaps before it become inadmissible."""
        head = cq.head()
        preemptor = self._pending.valid_preemptor(cq, head)
        if preemptor is not None and not preemptor.fits:
            self._pending.park(cq)
            return None
        if preemptor is not None and head is not None:
            self._pending.remove_preemptor(cq)
            return preemptor.complete_preemption(head)
        while head is not None:
            replaced = replaced_slice(head.info, cq)
            with without_replaced(replaced, cq):
                entry = self._assign(cq, head, replaced)
            if entry is not None:
                return entry
            head = cq.head()
        self._pending.park(cq)
        return None

    def _assign(self, cq: ClusterQueue, head: QueueHead, replaced: WorkloadInfo | None) -> NominatedWorkload | None:
        heap, info = head
        if info.requirements.invalid:
            heap.mark_inadmissible({}, unreclaimable={})
            self._stay_pending(head, ReasonMessage(messages.REASON_PENDING, info.requirements.invalid))
            return None
        allowed = None if replaced is None else frozenset(flavor for flavor, _ in replaced.usage)
        oracle = self._preemption_oracle(info, cq)

        def nominate(assignment: Assignment) -> NominatedWorkload | None:
            if assignment.mode is FlavorAssignmentMode.FIT:
                return NominatedWorkload(info, cq, heap, assignment, [], replaced)
            if assignment.mode is FlavorAssignmentMode.NO_FIT:
                return None
            targets = find_targets(info, cq, assignment, self._snapshot.candidates)
            if not targets:
                return None
            with simulate_removal(self._usages(targets)):
                assignment.borrowing = cq.node.max_borrowing_height(assignment.usage)
            return NominatedWorkload(info, cq, heap, assignment, targets, replaced)

        def nominate_partial(counts: Mapping[str, int]) -> NominatedWorkload | None:
            return nominate(heap.assigner.assign(cq.node, counts, oracle=oracle))

        assignment = heap.assigner.assign(cq.node, allowed=allowed, oracle=oracle)
        entry = nominate(assignment) or heap.assigner.find_largest(nominate_partial)
        if entry is None:
            _mark_inadmissible(heap, cq, heap.assigner.assign_min_count(cq.node) or assignment, replaced)
            self._stay_pending(head, ReasonMessage(assignment.reason, assignment.message))
        return entry

    def _preemption_oracle(self, info: WorkloadInfo, cq: ClusterQueue) -> PreemptionOracle:
        def simulate(key: FlavorResource, amount: int) -> SimulatedPreemption:
            requested = {key: amount}
            assignment = Assignment(usage=requested, need_preemption=requested)
            targets = find_targets(info, cq, assignment, self._snapshot.candidates)
            with simulate_removal(self._usages(targets)):
                borrowing = cq.node.max_borrowing_height(requested)
            if not targets:
                return SimulatedPreemption(PreemptionPossibility.NO_CANDIDATES, borrowing)
            if any(target.reason == messages.REASON_IN_CLUSTER_QUEUE for target in targets):
                return SimulatedPreemption(PreemptionPossibility.PREEMPT, borrowing)
            return SimulatedPreemption(PreemptionPossibility.RECLAIM, borrowing)

        return simulate

    def _usages(self, targets: list[PreemptionTarget]) -> list[NodeUsage]:
        return [*self._snapshot.usages(target.info.key for target in targets).values()]

    def _admit(self, entry: NominatedWorkload) -> None:
        if entry.replaced is not None:
            self._state.retire(entry.replaced)
        self._state.assume(entry.info, entry.cq.name, entry.assignment.usage, self._now)
        self._decisions.append(Admit(entry.info, entry.cq.name, entry.assignment, entry.replaced))

    def _preempt(self, entry: NominatedWorkload) -> None:
        """The preemptor waits for all its targets; those that are evicted already are not evicted again."""
        message = messages.pending_preemption(entry.assignment.message, len(entry.targets))
        why = ReasonMessage(messages.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, message)
        self._decisions.append(StayPending(entry.info, entry.heap, why))
        to_evict = [target for target in entry.targets if not target.info.is_evicted]
        if to_evict:
            cluster_queues = self._cache.cluster_queues
            paths = {target.info.key: cluster_queues[target.info.reserved_in].node.path for target in entry.targets}
            self._decisions.append(Preempt(entry.info, entry.cq.name, to_evict, paths, entry.cq.node.path))
        for target in to_evict:
            target.info.is_evicted = True

    def _quota_held_from(self, entry: NominatedWorkload) -> dict[str, NodeUsage]:
        """Quota that a workload may not borrow, because it is held for the heads of StrictFIFO queues."""
        is_borrower = entry.assignment.borrowing and not entry.is_preemptor
        return self._cache.quota_held_from(entry.cq) if is_borrower else {}

    def _block_borrowing(self, entry: NominatedWorkload) -> None:
        self._pending.requeuer.block_borrowing(entry)
        why = ReasonMessage(messages.REASON_QUOTA_HELD, messages.NO_LONGER_FITS)
        self._stay_pending(QueueHead(entry.heap, entry.info), why)

    def _wait_for_preemptors(self, entry: NominatedWorkload, message: str) -> None:
        """Preemptors get what it needs. As in Kueue, no other workload of its queue passes it meanwhile."""
        self._pending.wait_for_preemptors(entry.cq)
        why = ReasonMessage(messages.REASON_WAITING_FOR_QUOTA, message)
        self._stay_pending(QueueHead(entry.heap, entry.info), why)

    def _stay_pending(self, head: QueueHead, why: ReasonMessage) -> None:
        head.heap.pending_reason = why
        self._decisions.append(StayPending(head.info, head.heap, why))


def _mark_inadmissible(
    heap: PendingHeap, cq: ClusterQueue, assignment: Assignment, replaced: WorkloadInfo | None
) -> None:
    usage = {} if replaced is None else replaced.usage
    thresholds = heap.assigner.retry_thresholds(cq.node, assignment)
    # As in Kueue: a queue that may reclaim everything that was borrowed from it lets others borrow meanwhile.
    can_reclaim_all = cq.spec.preemption.reclaim_within_cohort == names.ANY
    is_unreclaimable = assignment.mode is FlavorAssignmentMode.PREEMPT and not can_reclaim_all
    unreclaimable = _subtract(assignment.usage, usage) if is_unreclaimable else {}
    heap.mark_inadmissible(_subtract(thresholds, usage), unreclaimable=unreclaimable)


def _subtract(quantities: FlavorResourceQuantities, usage: FlavorResourceQuantities) -> FlavorResourceQuantities:
    return {key: amount - usage.get(key, 0) for key, amount in quantities.items()} if usage else quantities
