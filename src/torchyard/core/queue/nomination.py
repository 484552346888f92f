"""The workload of a queue that is looked at in a round: what it would get, and who has to give it back first."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from torchyard.core.queue.cluster_queue import Lane, Pool
from torchyard.core.queue.flavor_assigner import Assignment, Mode
from torchyard.core.queue.preemption import Target
from torchyard.core.queue.quota import thought_away
from torchyard.core.queue.workload_info import Item, Key


@dataclass
class Nominee:
    item: Item
    pool: Pool
    lane: Lane
    assignment: Assignment
    targets: list[Target]
    replaced: Item | None  # the running workload whose quota it takes over
    has_claim: bool = False  # others were told to give back what it gets

    @property
    def order(self) -> tuple[bool, int, int, float, Key]:
        """Kueue's, with its gate PrioritizePreemptorWorkloads: what is freed for one nobody else gets."""
        return not self.has_claim, self.assignment.borrows, *self.item.order

    @property
    def fits(self) -> bool:
        available = self.pool.node.available
        with without(self.replaced, self.pool):
            return all(amount <= available(key) for key, amount in self.assignment.usage.items())

    def come_true(self, lane: Lane, item: Item) -> Nominee:
        """The same workload as it is now, with the flavors that others gave back for it.

        Kueue would choose them anew. What a pod set gets depends on what is free for it and for those before it: a new
        choice can miss what was freed, those who gave it back take it again, and are preempted again, for ever.
        """
        with without(self.replaced, self.pool):
            borrows = self.pool.node.farthest(self.assignment.usage)
        assignment = replace(self.assignment, mode=Mode.FIT, borrows=borrows)
        return replace(self, lane=lane, item=item, assignment=assignment, targets=[])


def replaced_by(item: Item, pool: Pool) -> Item | None:
    """The running workload whose quota a larger one of the same job takes over."""
    old = pool.holding.get(item.replaces) if item.replaces is not None else None
    return old if old is not None and not old.is_evicted else None


def without(replaced: Item | None, pool: Pool) -> AbstractContextManager[None]:
    """Quotas as they are when a workload gives its own to the next of its job."""
    return nullcontext() if replaced is None else thought_away([(pool.node, replaced.held)])
