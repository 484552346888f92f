"""One scheduling cycle: nominate the head of every active ClusterQueue, then admit or preempt in a fair order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from torchyard.api.queue import messages, names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap, QueueHead
from torchyard.core.queue.fair_sharing import fair_order
from torchyard.core.queue.flavor_assigner import (
    Assignment,
    FlavorAssignmentMode,
    PreemptionOracle,
    PreemptionPossibility,
    SimulatedPreemption,
)
from torchyard.core.queue.nomination import BlockedHead, NominatedWorkload, replaced_slice, without_replaced
from torchyard.core.queue.preemption import PreemptionSearch, PreemptionTarget, find_targets, wait_for_evicted
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
        nominated = self._nominate_all(self._active_queues())
        roots = {entry.cq.node.root for entry in nominated}
        queues = {entry.cq.name for entry in nominated}
        nominated += self._nominate_all(cq for cq in self._pending.preemptors.under(roots) if cq.name not in queues)
        entries: list[NominatedWorkload | BlockedHead] = [*nominated, *self._cache.blocked_heads(roots)]
        targeted: set[Key] = set()
        for entry in self._in_order(entries):
            try:
                if isinstance(entry, BlockedHead):
                    self._snapshot.promise_to_head(entry)
                else:
                    self._process(entry, targeted)
            except Exception as error:  # what was decided for the other queues is already counted, and must be written
                self._fail(entry.cq, error)
        self._snapshot.drop_transient_promises()
        self._pending.requeuer.requeue_retries(self._snapshot.promised_roots)
        return self._decisions

    def _in_order(self, entries: list[NominatedWorkload | BlockedHead]) -> Iterator[NominatedWorkload | BlockedHead]:
        entries.sort(key=lambda entry: entry.order)
        if self._state.fair_sharing is None:
            yield from entries
            return
        yield from (entry for entry in entries if entry.is_first)
        yield from fair_order(entry for entry in entries if not entry.is_first)

    def _active_queues(self) -> list[ClusterQueue]:
        active, cluster_queues = self._pending.active, self._cache.cluster_queues
        for name in active.keys() - cluster_queues.keys():
            del active[name]
        return [cluster_queues[name] for name in sorted(active)]

    def _nominate_all(self, cluster_queues: Iterable[ClusterQueue]) -> list[NominatedWorkload]:
        nominated: list[NominatedWorkload] = []
        for cq in cluster_queues:
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
        if entry.assignment.mode is FlavorAssignmentMode.PREEMPT and not entry.targets:
            self._wait_for_quota(entry)
        elif not targeted.isdisjoint(entry.target_keys):
            self._wait_for_preemptors(entry, messages.OVERLAPPING_TARGETS)
        elif not snapshot.fits(entry):
            if entry.heap.skip_flavors(entry.assignment.scan):
                self._pending.active[entry.cq.name] = None  # as in Kueue, the next attempt goes on with other flavors
            elif snapshot.fits_without_promises(entry):
                self._wait_for_preemptors(entry, messages.NO_LONGER_FITS)
            else:
                # Another workload was admitted in this cycle, or quota is reserved for this cycle only. So it takes
                # part in the next one, also if it is a preemptor that was not active.
                self._pending.active[entry.cq.name] = None
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

    def _wait_for_quota(self, entry: NominatedWorkload) -> None:
        """It needs quota that others use and that it cannot reclaim. As in Kueue, it keeps others from using more."""
        assignment, heap, cq = entry.assignment, entry.heap, entry.cq
        self._mark_inadmissible(entry)
        if cq.spec.preemption.reclaim_within_cohort != names.ANY:
            heap.blocked = assignment
            head = BlockedHead(cq, entry.info, assignment)
            self._snapshot.promise_to_head(head, is_transient=not cq.spec.is_strict_fifo)
        if cq.head() is None:
            self._pending.park(cq)

    def _nominate(self, cq: ClusterQueue) -> NominatedWorkload | None:
        """The first workload of a queue, if it fits with or without preemption. Otherwise its heap is inadmissible."""
        head = self._pending.head(cq)
        entry: NominatedWorkload | None = None
        if head is not None:
            replaced = replaced_slice(head.info, cq)
            with without_replaced(replaced, cq):
                entry = self._assign_freed(cq, head, replaced) or self._assign(cq, head, replaced)
        if entry is not None:
            entry.is_preemptor = self._pending.preemptors.is_preemptor(cq, entry.info.key)
        elif cq.head() is None:
            self._pending.park(cq)
        return entry

    def _assign_freed(
        self, cq: ClusterQueue, head: QueueHead, replaced: WorkloadInfo | None
    ) -> NominatedWorkload | None:
        """The flavors in which it preempted others, if it must take them: at once, or when all of these are gone."""
        freed = self._pending.preemptors.freed_assignment(cq, head.info)
        if freed is None:
            return None
        missing = {key: amount for key, amount in freed.usage.items() if amount > cq.node.available(key)}
        mode = FlavorAssignmentMode.PREEMPT if missing else FlavorAssignmentMode.FIT
        borrowing = cq.node.max_borrowing_height(freed.usage)
        assignment = replace(freed, mode=mode, borrowing=borrowing, need_preemption=missing)
        targets: list[PreemptionTarget] = []
        if missing:
            candidates = self._snapshot.candidates
            targets = self._find_targets(head.info, cq, assignment).targets or wait_for_evicted(
                cq, assignment, candidates
            )
            if not targets:
                return None
        return NominatedWorkload(head.info, cq, head.heap, assignment, targets, replaced)

    def _find_targets(self, info: WorkloadInfo, cq: ClusterQueue, assignment: Assignment) -> PreemptionSearch:
        return find_targets(info, cq, assignment, self._snapshot.candidates, self._state.fair_sharing)

    def _assign(self, cq: ClusterQueue, head: QueueHead, replaced: WorkloadInfo | None) -> NominatedWorkload | None:
        heap, info = head
        if info.requirements.invalid:
            heap.mark_inadmissible({})
            self._stay_pending(head, ReasonMessage(messages.REASON_PENDING, info.requirements.invalid))
            return None
        allowed = None if replaced is None else frozenset(flavor for flavor, _ in replaced.usage)
        oracle = self._preemption_oracle(info, cq)

        def nominate(assignment: Assignment) -> NominatedWorkload | None:
            return self._nominate_assigned(head, cq, assignment, replaced)

        def nominate_partial(counts: Mapping[str, int]) -> NominatedWorkload | None:
            return nominate(heap.assigner.assign(cq.node, counts, oracle=oracle))

        if heap.next_scan is not None:
            next_scan, heap.next_scan = heap.next_scan, None
            entry = nominate(heap.assigner.assign(cq.node, allowed=allowed, oracle=oracle, scan=next_scan))
            if entry is not None:
                return entry
        scan = heap.scans[-1] if heap.scans else None
        assignment = heap.assigner.assign(cq.node, allowed=allowed, oracle=oracle, scan=scan)
        entry = nominate(assignment) or heap.assigner.find_largest(nominate_partial)
        if entry is not None:
            heap.scans = []
            return entry
        if assignment.mode is FlavorAssignmentMode.PREEMPT:
            return NominatedWorkload(info, cq, heap, assignment, [], replaced)
        self._mark_inadmissible(NominatedWorkload(info, cq, heap, assignment, [], replaced))
        return None

    def _nominate_assigned(
        self, head: QueueHead, cq: ClusterQueue, assignment: Assignment, replaced: WorkloadInfo | None
    ) -> NominatedWorkload | None:
        """The workload with an assignment that fits, with preemption targets if it needs them; None if it does not."""
        heap, info = head
        if assignment.mode is FlavorAssignmentMode.FIT:
            return NominatedWorkload(info, cq, heap, assignment, [], replaced)
        if assignment.mode is FlavorAssignmentMode.NO_FIT:
            return None
        targets, shortage = self._find_targets(info, cq, assignment)
        if not targets:
            for key, missing in shortage.items():
                if key in assignment.insufficient:
                    enough = cq.node.available(key) + missing
                    assignment.insufficient[key] = min(enough, assignment.insufficient[key])
            return None
        with simulate_removal(self._usages(targets)):
            assignment.borrowing = cq.node.max_borrowing_height(assignment.usage)
        return NominatedWorkload(info, cq, heap, assignment, targets, replaced)

    def _mark_inadmissible(self, entry: NominatedWorkload) -> None:
        """No workload of the heap fits, unless the next cycle goes on with other flavors."""
        self._pending.remove_preemptor(entry.cq)
        heap, assignment = entry.heap, entry.assignment
        if assignment.scan and assignment.scan not in heap.scans:
            heap.scans.append(assignment.scan)
            return
        node = entry.cq.node
        thresholds = heap.assigner.retry_thresholds(node, heap.assigner.assign_min_count(node) or assignment)
        if heap.scans:  # the last attempt did not try all flavors
            thresholds = heap.assigner.retry_thresholds(node, heap.assigner.assign(node)) | thresholds
        heap.mark_inadmissible(_subtract(thresholds, {} if entry.replaced is None else entry.replaced.usage))
        self._stay_pending(QueueHead(heap, entry.info), ReasonMessage(assignment.reason, assignment.message))

    def _preemption_oracle(self, info: WorkloadInfo, cq: ClusterQueue) -> PreemptionOracle:
        def simulate(key: FlavorResource, amount: int) -> SimulatedPreemption:
            requested = {key: amount}
            assignment = Assignment(usage=requested, need_preemption=requested)
            targets, shortage = self._find_targets(info, cq, assignment)
            with simulate_removal(self._usages(targets)):
                borrowing = cq.node.max_borrowing_height(requested)
            if not targets:
                return SimulatedPreemption(PreemptionPossibility.NO_CANDIDATES, borrowing, shortage.get(key, 0))
            if any(target.reason == messages.REASON_IN_CLUSTER_QUEUE for target in targets):
                return SimulatedPreemption(PreemptionPossibility.PREEMPT, borrowing)
            return SimulatedPreemption(PreemptionPossibility.RECLAIM, borrowing)

        return simulate

    def _usages(self, targets: list[PreemptionTarget]) -> list[NodeUsage]:
        return [*self._snapshot.usages(target.info.key for target in targets).values()]

    def _admit(self, entry: NominatedWorkload) -> None:
        self._pending.remove_preemptor(entry.cq)
        self._pending.requeuer.quota_decided(entry.cq.node.root)
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
            self._pending.requeuer.quota_decided(entry.cq.node.root)
            entry.info.preemption_rounds += 1
            cluster_queues = self._cache.cluster_queues
            paths = {target.info.key: cluster_queues[target.info.reserved_in].node.path for target in entry.targets}
            self._decisions.append(Preempt(entry.info, entry.cq.name, to_evict, paths, entry.cq.node.path))
        for target in to_evict:
            target.info.is_evicted = True

    def _wait_for_preemptors(self, entry: NominatedWorkload, message: str) -> None:
        """Preemptors or blocked heads get what it needs. As in Kueue, no workload of its queue passes it meanwhile."""
        self._pending.wait_for_preemptors(entry.cq)
        roots = [entry.cq.node.root]
        is_held = not self._pending.preemptors.under(roots) and bool(self._cache.blocked_heads(roots))
        why = ReasonMessage(messages.REASON_QUOTA_HELD if is_held else messages.REASON_WAITING_FOR_QUOTA, message)
        self._stay_pending(QueueHead(entry.heap, entry.info), why)

    def _stay_pending(self, head: QueueHead, why: ReasonMessage) -> None:
        head.heap.pending_reason = why
        self._decisions.append(StayPending(head.info, head.heap, why))


def _subtract(quantities: FlavorResourceQuantities, usage: FlavorResourceQuantities) -> FlavorResourceQuantities:
    return {key: amount - usage.get(key, 0) for key, amount in quantities.items()} if usage else quantities
