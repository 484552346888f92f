"""Quota that is spoken for while others give it back: of each queue the first may claim some."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torchyard.core.queue.cluster_queue import Lane, Pool
from torchyard.core.queue.nomination import Nominee, replaced_by
from torchyard.core.queue.quota import Node
from torchyard.core.queue.workload_info import Item, Key


class Claims:
    def __init__(self, items: Mapping[Key, Item]) -> None:
        self._items = items
        self._by_queue: dict[str, Nominee] = {}
        self._behind: dict[str, None] = {}  # queues whose first waits for what others claim

    def __contains__(self, pool: Pool) -> bool:
        return pool.queue.name in self._by_queue

    def has(self, one: Nominee) -> bool:
        return self._by_queue.get(one.pool.queue.name) is one

    def under(self, roots: Collection[Node]) -> list[Nominee]:
        return [one for one in self._by_queue.values() if one.pool.node.root in roots]

    def add(self, one: Nominee) -> None:
        one.has_claim = True
        self._by_queue[one.pool.queue.name] = one

    def step_back(self, pool: Pool) -> None:
        self._behind[pool.queue.name] = None

    def of(self, pool: Pool) -> Nominee | None:
        return self._by_queue.get(pool.queue.name)

    def holds_for(self, claim: Nominee, head: tuple[Lane, Item] | None) -> bool:
        """Whether the first of the queue is still the one that was promised it, and it is there or still to come."""
        return head is not None and head[1].asks_as(claim.item) and self._stands(claim)

    def end(self, pool: Pool) -> None:
        del self._by_queue[pool.queue.name]

    def is_due(self, pool: Pool) -> bool:
        """Whether the first of a queue is to be looked at again, now that there is more; asked once each time."""
        name = pool.queue.name
        was_behind = name in self._behind
        if was_behind:
            del self._behind[name]
        claim = self._by_queue.get(name)
        return was_behind or (claim is not None and (claim.fits or not self._stands(claim)))

    def clear(self) -> None:
        self._by_queue.clear()
        self._behind.clear()

    def _stands(self, claim: Nominee) -> bool:
        is_same = replaced_by(claim.item, claim.pool) is claim.replaced
        return is_same and (claim.fits or self._is_more_to_come(claim))

    def _is_more_to_come(self, claim: Nominee) -> bool:
        known = (self._items.get(target.item.key) for target in claim.targets)
        left = [one for one in known if one is not None and one.place]
        return bool(left) and all(one.is_evicted for one in left)
