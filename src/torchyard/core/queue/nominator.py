"""Nominates the head of a ClusterQueue for a scheduling cycle: its flavors, and the workloads to preempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torchyard.api.queue import messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.borrowing import borrowing_height
from torchyard.core.queue.cluster_queue import ClusterQueue, QueueHead
from torchyard.core.queue.decisions import SchedulingDecision, StayPending
from torchyard.core.queue.flavor_assigner import (
    Assignment,
    FlavorAssignmentMode,
    PreemptionOracle,
    PreemptionPossibility,
    SimulatedPreemption,
)
from torchyard.core.queue.minimal_targets import PreemptionTarget
from torchyard.core.queue.nomination import NominatedWorkload, replaced_slice, without_replaced
from torchyard.core.queue.pending import PendingQueues
from torchyard.core.queue.preemption import PreemptionSearch, find_targets, wait_for_evicted
from torchyard.core.queue.quota import NodeUsage, simulate_removal
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities
from torchyard.core.queue.settings import FairSharing
from torchyard.core.queue.snapshot import QuotaSnapshot
from torchyard.core.queue.workload_info import WorkloadInfo


class Nominator:
    def __init__(
        self,
        pending: PendingQueues,
        snapshot: QuotaSnapshot,
        fair_sharing: FairSharing | None,
        decisions: list[SchedulingDecision],
    ) -> None:
        """`decisions`: gets those about workloads that stay pending."""
        self._pending, self._snapshot, self._fair_sharing = pending, snapshot, fair_sharing
        self._decisions = decisions

    def nominate(self, cq: ClusterQueue) -> NominatedWorkload | None:
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
        borrowing = borrowing_height(cq.node, freed.usage)
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
        return find_targets(info, cq, assignment, self._snapshot.candidates, self._fair_sharing)

    def _assign(self, cq: ClusterQueue, head: QueueHead, replaced: WorkloadInfo | None) -> NominatedWorkload | None:
        heap, info = head
        if info.requirements.invalid:
            heap.mark_inadmissible({})
            self.stay_pending(head, ReasonMessage(messages.REASON_PENDING, info.requirements.invalid))
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
        self.mark_inadmissible(NominatedWorkload(info, cq, heap, assignment, [], replaced))
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
            assignment.borrowing = borrowing_height(cq.node, assignment.usage)
        return NominatedWorkload(info, cq, heap, assignment, targets, replaced)

    def mark_inadmissible(self, entry: NominatedWorkload) -> None:
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
        self.stay_pending(QueueHead(heap, entry.info), ReasonMessage(assignment.reason, assignment.message))

    def _preemption_oracle(self, info: WorkloadInfo, cq: ClusterQueue) -> PreemptionOracle:
        def simulate(key: FlavorResource, amount: int) -> SimulatedPreemption:
            requested = {key: amount}
            assignment = Assignment(usage=requested, need_preemption=requested)
            targets, shortage = self._find_targets(info, cq, assignment)
            with simulate_removal(self._usages(targets)):
                borrowing = borrowing_height(cq.node, requested)
            if not targets:
                return SimulatedPreemption(PreemptionPossibility.NO_CANDIDATES, borrowing, shortage.get(key, 0))
            if any(target.reason == messages.REASON_IN_CLUSTER_QUEUE for target in targets):
                return SimulatedPreemption(PreemptionPossibility.PREEMPT, borrowing)
            return SimulatedPreemption(PreemptionPossibility.RECLAIM, borrowing)

        return simulate

    def _usages(self, targets: list[PreemptionTarget]) -> list[NodeUsage]:
        return [*self._snapshot.usages(target.info.key for target in targets).values()]

    def stay_pending(self, head: QueueHead, why: ReasonMessage) -> None:
        head.heap.pending_reason = why
        self._decisions.append(StayPending(head.info, head.heap, why))


def _subtract(quantities: FlavorResourceQuantities, usage: FlavorResourceQuantities) -> FlavorResourceQuantities:
    return {key: amount - usage.get(key, 0) for key, amount in quantities.items()} if usage else quantities
