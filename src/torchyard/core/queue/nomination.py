"""The workload of a ClusterQueue that takes part in a scheduling cycle: its assignment and its preemption targets."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap, QueueHead
from torchyard.core.queue.flavor_assigner import Assignment, FlavorAssignmentMode
from torchyard.core.queue.preemption import PreemptionTarget
from torchyard.core.queue.quota import NodeUsage, simulate_removal
from torchyard.core.queue.workload_info import Key, WorkloadInfo


@dataclass
class NominatedWorkload:
    info: WorkloadInfo
    cq: ClusterQueue
    heap: PendingHeap
    assignment: Assignment
    targets: list[PreemptionTarget]
    replaced: WorkloadInfo | None  # the running slice of the same job whose quota it takes over
    is_preemptor: bool = False  # workloads were evicted to free what it gets

    @property
    def order(self) -> tuple[bool, int, int, float, Key]:
        """Kueue's, with its gate PrioritizePreemptorWorkloads: quota that was freed for a workload goes to it."""
        return not self.is_preemptor, self.assignment.borrowing, *self.info.order

    @property
    def target_keys(self) -> list[Key]:
        return [target.info.key for target in self.targets]

    @property
    def fits(self) -> bool:
        available = self.cq.node.available
        with without_replaced(self.replaced, self.cq):
            return all(amount <= available(key) for key, amount in self.assignment.usage.items())

    def fits_without(self, usages: list[NodeUsage]) -> bool:
        with simulate_removal(usages):
            return self.fits

    def complete_preemption(self, head: QueueHead) -> NominatedWorkload:
        """The workload in its current version, with the flavors that were freed for it.

        Kueue would assign flavors again. They depend on what is free for this pod set and for those before it, so
        the new ones can be others than those that were freed. Then the preempted workloads take the freed ones again,
        are preempted again, and so on without end.
        """
        with without_replaced(self.replaced, self.cq):
            borrowing = self.cq.node.max_borrowing_height(self.assignment.usage)
        assignment = replace(self.assignment, mode=FlavorAssignmentMode.FIT, borrowing=borrowing)
        return replace(self, heap=head.heap, info=head.info, assignment=assignment, targets=[])


def replaced_slice(info: WorkloadInfo, cq: ClusterQueue) -> WorkloadInfo | None:
    """The running workload whose quota a larger slice of the same job takes over."""
    previous = cq.reserving.get(info.replaces) if info.replaces is not None else None
    return previous if previous is not None and not previous.is_evicted else None


def without_replaced(replaced: WorkloadInfo | None, cq: ClusterQueue) -> AbstractContextManager[None]:
    """Inside the context the quotas are as if the replaced slice were gone."""
    return nullcontext() if replaced is None else simulate_removal([NodeUsage(cq.node, replaced.usage)])
