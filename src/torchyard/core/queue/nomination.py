"""The workload of a ClusterQueue that takes part in a scheduling cycle: its assignment and its preemption targets."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torchyard.core.queue.cluster_queue import ClusterQueue, PendingHeap
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.minimal_targets import PreemptionTarget
from torchyard.core.queue.quota import NO_QUOTA, NodeUsage, simulate_removal
from torchyard.core.queue.resources import FlavorResourceQuantities
from torchyard.core.queue.workload_info import Key, WorkloadInfo


@dataclass(frozen=True)
class BlockedHead:
    """The head of a ClusterQueue that needs quota which others use and which it cannot reclaim."""

    cq: ClusterQueue
    info: WorkloadInfo
    assignment: Assignment

    @property
    def order(self) -> tuple[bool, int, int, float, Key]:
        return True, self.assignment.borrowing, *self.info.order

    @property
    def is_first(self) -> bool:
        return False

    @property
    def reserved(self) -> FlavorResourceQuantities:
        """What nothing after it in the cycle may use: as much of its request as its queue may still use."""
        node, borrows = self.cq.node, self.assignment.borrowing > 0
        reserved: FlavorResourceQuantities = {}
        for key, amount in self.assignment.usage.items():
            quota, used = node.quotas.get(key, NO_QUOTA), node.usage.get(key, 0)
            if not borrows:
                reserved[key] = max(0, min(amount, quota.nominal - used))
            elif quota.borrowing_limit is None:
                reserved[key] = amount
            else:
                reserved[key] = max(0, min(amount, quota.nominal + quota.borrowing_limit - used))
        return reserved


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
        """Those that borrow less first, then by priority and age."""
        return not self.is_first, self.assignment.borrowing, *self.info.order

    @property
    def is_first(self) -> bool:
        """A workload that had to preempt again and again, because others took what it freed, is before all others."""
        return self.is_preemptor and self.info.has_preempted_often

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


def replaced_slice(info: WorkloadInfo, cq: ClusterQueue) -> WorkloadInfo | None:
    """The running workload whose quota a larger slice of the same job takes over."""
    previous = cq.reserving.get(info.replaces) if info.replaces is not None else None
    return previous if previous is not None and not previous.is_evicted else None


def without_replaced(replaced: WorkloadInfo | None, cq: ClusterQueue) -> AbstractContextManager[None]:
    """Inside the context the quotas are as if the replaced slice were gone."""
    return nullcontext() if replaced is None else simulate_removal([NodeUsage(cq.node, replaced.usage)])
