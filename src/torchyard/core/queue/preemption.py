"""Who has to give quota back so that a workload fits: Kueue's classic algorithm.

Candidates are taken until it fits, those of borrowing queues first, then low priority, then lately admitted; afterwards
each is given back that turns out not to be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Pool
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.quota import Node
from torchyard.core.queue.resources import Amounts, FlavorResource
from torchyard.core.queue.workload_info import Item, Key


class Target(NamedTuple):
    item: Item
    reason: str


_Candidate = tuple[Item, Pool]


class Borrowers:
    """Those who hold what their queue borrows, found once for all who look in a round.

    In a cohort of a hundred queues they would be found and sorted a hundred times else. Nothing may be given or taken
    between one look and the next.
    """

    def __init__(self, neighbours: Callable[[Pool], Iterable[Pool]]) -> None:
        self._neighbours = neighbours
        self._found: dict[tuple[Node, frozenset[FlavorResource]], list[_Candidate]] = {}

    def around(self, pool: Pool, keys: frozenset[FlavorResource], *, below: int | None) -> Iterator[_Candidate]:
        """Those around `pool` that borrow some of these, with less priority than `below`, in the order to be taken."""
        where = pool.node.root, keys
        if where not in self._found:
            # Its own are there for the others: whether it borrows is not known while one of them is thought away.
            around = (
                one for one in self._neighbours(pool) if one is pool or any(one.node.is_borrowing(key) for key in keys)
            )
            self._found[where] = sorted(
                ((item, one) for one in around for item in one.holding.values() if not keys.isdisjoint(item.held)),
                key=_order,
            )
        for item, one in self._found[where]:
            if below is not None and item.priority >= below:
                if not item.is_evicted:
                    return
            elif one is not pool and _borrows(item, one, keys):
                yield item, one


def targets(item: Item, pool: Pool, assignment: Assignment, borrowers: Borrowers) -> list[Target]:
    """Empty: nothing that may be taken helps. The quotas are as before when this returns."""
    keys = frozenset(assignment.short)
    policy = pool.queue.preemption
    own = sorted(_own(item, pool, keys), key=_order)
    # Kueue would let it borrow again, lose it again, and preempt again, for ever.
    may_borrow = not item.has_lost_a_loan
    attempt = _Attempt(pool, assignment.usage, keys)
    is_under = all(pool.node.usage.get(key, 0) < pool.node.nominal(key) for key in keys)
    below = None if policy.reclaim == names.ANY else item.priority
    # A queue that uses its nominal quota already takes nothing from others, unless it may while borrowing.
    may_reclaim = policy.reclaim != names.NEVER and (is_under or policy.borrow)
    if not may_reclaim or next(borrowers.around(pool, keys, below=below), None) is None:
        return attempt.fewest(own, may_borrow=may_borrow)
    if policy.borrow:
        limit = item.priority
        if policy.threshold is not None and policy.threshold < limit:
            limit = policy.threshold + 1
        if not is_under:
            below = limit
        found = _merged(borrowers.around(pool, keys, below=below), own, pool)
        return attempt.fewest(found, may_borrow=may_borrow, below=limit)
    chosen = attempt.fewest(_merged(borrowers.around(pool, keys, below=below), own, pool), may_borrow=False)
    return chosen or attempt.fewest(own, may_borrow=may_borrow)


def _own(item: Item, pool: Pool, keys: frozenset[FlavorResource]) -> Iterator[_Candidate]:
    policy = pool.queue.preemption
    if policy.within == names.NEVER:
        return
    is_weaker = _weaker(item, newer_too=policy.within == names.LOWER_OR_NEWER)
    for one in pool.holding.values():
        if one.key != item.replaces and is_weaker(one) and not keys.isdisjoint(one.held):
            yield one, pool


def _merged(others: Iterator[_Candidate], own: list[_Candidate], pool: Pool) -> Iterable[_Candidate]:
    """Both in the order to be taken: of those evicted already and of the rest, the others' first."""
    if not own:
        return others
    return merge(others, own, key=lambda one: (not one[0].is_evicted, one[1] is pool))


def _borrows(item: Item, pool: Pool, keys: frozenset[FlavorResource]) -> bool:
    """Kueue asks whether its queue borrows anything that is needed, and then takes its own of something else, too."""
    return any(key in keys and pool.node.is_borrowing(key) for key in item.held)


def _weaker(item: Item, *, newer_too: bool) -> Callable[[Item], bool]:
    def is_weaker(other: Item) -> bool:
        if other.priority != item.priority:
            return other.priority < item.priority
        return newer_too and other.queued_at > item.queued_at

    return is_weaker


def _order(candidate: _Candidate) -> tuple[bool, int, float, Key]:
    item, _ = candidate
    return not item.is_evicted, item.priority, -item.reserved_at, item.key


class _Attempt:
    def __init__(self, pool: Pool, usage: Amounts, keys: frozenset[FlavorResource]) -> None:
        self._pool, self._usage, self._keys = pool, usage, keys

    def fewest(self, candidates: Iterable[_Candidate], *, may_borrow: bool, below: int | None = None) -> list[Target]:
        """`below`: while the pool borrows, it takes from others only what has less priority than this."""
        taken: list[tuple[Target, Pool]] = []
        fits = False
        for item, where in candidates:
            reason = messages.IN_QUEUE
            if where is not self._pool:
                if not _borrows(item, where, self._keys):
                    continue
                reason = messages.IN_COHORT
                if below is not None and item.priority >= below:
                    may_borrow = False
                elif below is not None:
                    reason = messages.WHILE_BORROWING
            where.node.remove(item.held)
            taken.append((Target(item, reason), where))
            if self._fits(may_borrow=may_borrow):
                fits = True
                break
        kept = self._without_spare(taken, may_borrow=may_borrow) if fits else taken
        for target, where in kept:
            where.node.add(target.item.held)
        return [target for target, _ in kept] if fits else []

    def _without_spare(self, taken: list[tuple[Target, Pool]], *, may_borrow: bool) -> list[tuple[Target, Pool]]:
        kept = list(taken)
        for index in range(len(kept) - 2, -1, -1):
            target, where = kept[index]
            where.node.add(target.item.held)
            if self._fits(may_borrow=may_borrow):
                del kept[index]
            else:
                where.node.remove(target.item.held)
        return kept

    def _fits(self, *, may_borrow: bool) -> bool:
        node = self._pool.node
        for key, amount in self._usage.items():
            if amount > node.available(key):
                return False
            if not may_borrow and node.usage.get(key, 0) + amount > node.nominal(key):
                return False
        return True
