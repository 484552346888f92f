"""One scheduling cycle: nominate the head of every active ClusterQueue, then admit or preempt in a fair order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchyard.api.queue import messages, names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue, QueueHead
from torchyard.core.queue.decisions import Admit, Preempt, SchedulingDecision, SchedulingFailure, StayPending
from torchyard.core.queue.fair_sharing import fair_order
from torchyard.core.queue.flavor_assigner import FlavorAssignmentMode
from torchyard.core.queue.nomination import BlockedHead, NominatedWorkload
from torchyard.core.queue.nominator import Nominator
from torchyard.core.queue.snapshot import QuotaSnapshot
from torchyard.core.queue.state import QueueState
from torchyard.core.queue.workload_info import Key


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
        self._nominator = Nominator(self._pending, snapshot, state.fair_sharing, self._decisions)

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
                entry = self._nominator.nominate(cq)
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
        self._nominator.mark_inadmissible(entry)
        if cq.spec.preemption.reclaim_within_cohort != names.ANY:
            heap.blocked = assignment
            head = BlockedHead(cq, entry.info, assignment)
            self._snapshot.promise_to_head(head, is_transient=not cq.spec.is_strict_fifo)
        if cq.head() is None:
            self._pending.park(cq)

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
        self._nominator.stay_pending(QueueHead(entry.heap, entry.info), why)
