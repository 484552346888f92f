"""Who has to give quota back so that a workload fits: Kueue's classic algorithm.

Candidates are taken until it fits, those of borrowing queues first, then low priority, then lately admitted; afterwards
each is given back that turns out not to be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchyard.api.queue import names, words
from torchyard.core.queue.amounts import Amounts, FlavorResource
from torchyard.core.queue.assign import Assignment
from torchyard.core.queue.items import Item
from torchyard.core.queue.pool import Pool


class Target(NamedTuple):
    item: Item
    reason: str


def targets(item: Item, pool: Pool, assignment: Assignment, cohort: Iterable[Pool]) -> list[Target]:
    """Empty: nothing that may be taken helps. The quotas are as before when this returns."""
    keys = frozenset(assignment.short)
    policy = pool.queue.preemption
    is_under = all(pool.node.usage.get(key, 0) < pool.node.nominal(key) for key in keys)
    # A queue that uses its nominal quota already takes nothing from others, unless it may while borrowing.
    others = cohort if is_under or policy.borrow else ()
    found = sorted(_candidates(item, pool, keys, others), key=lambda one: _order(one, pool))
    if not found:
        return []
    own = [one for one in found if one[1] is pool]
    # Kueue would let it. But what it takes from its own queue to borrow with goes the same way again, and when a weaker
    # one of its queue then reclaims what is theirs, all three go round for ever.
    may_borrow = not item.was_outranked
    attempt = _Attempt(pool, assignment.usage, keys)
    if len(own) == len(found):
        return attempt.fewest(own, may_borrow=may_borrow)
    if policy.borrow:
        limit = item.priority
        if policy.threshold is not None and policy.threshold < limit:
            limit = policy.threshold + 1
        if not is_under:
            found = [one for one in found if one[1] is pool or one[0].priority < limit]
        return attempt.fewest(found, may_borrow=may_borrow, below=limit)
    if is_under:
        chosen = attempt.fewest(found, may_borrow=False)
        if chosen:
            return chosen
    return attempt.fewest(own, may_borrow=may_borrow)


_Candidate = tuple[Item, Pool]


def _candidates(
    item: Item, pool: Pool, keys: frozenset[FlavorResource], cohort: Iterable[Pool]
) -> Iterable[_Candidate]:
    policy = pool.queue.preemption
    if policy.within != names.NEVER:
        is_weaker = _weaker(item, newer_too=policy.within == names.LOWER_OR_NEWER)
        for one in pool.holding.values():
            if one.key != item.replaces and is_weaker(one) and not keys.isdisjoint(one.held):
                yield one, pool
    if policy.reclaim == names.NEVER:
        return
    for other in cohort:
        borrowed = [key for key in keys if other.node.is_borrowing(key)] if other is not pool else []
        if not borrowed:
            continue
        for one in other.holding.values():
            may_go = policy.reclaim == names.ANY or one.priority < item.priority
            if may_go and any(key in one.held for key in borrowed):
                yield one, other


def _weaker(item: Item, *, newer_too: bool) -> Callable[[Item], bool]:
    def is_weaker(other: Item) -> bool:
        if other.priority != item.priority:
            return other.priority < item.priority
        return newer_too and other.queued_at > item.queued_at

    return is_weaker


def _order(candidate: _Candidate, pool: Pool) -> tuple[bool, bool, int, float, tuple[str, str]]:
    item, where = candidate
    return not item.is_evicted, where is pool, item.priority, -item.reserved_at, item.key


class _Attempt:
    def __init__(self, pool: Pool, usage: Amounts, keys: frozenset[FlavorResource]) -> None:
        self._pool, self._usage, self._keys = pool, usage, keys

    def fewest(self, candidates: list[_Candidate], *, may_borrow: bool, below: int | None = None) -> list[Target]:
        """`below`: while the pool borrows, it takes from others only what has less priority than this."""
        taken: list[tuple[Target, Pool]] = []
        fits = False
        for item, where in candidates:
            reason = words.IN_QUEUE
            if where is not self._pool:
                # Kueue asks whether it borrows anything that is needed, and then takes its own of something else, too.
                if not any(key in self._keys and where.node.is_borrowing(key) for key in item.held):
                    continue
                reason = words.IN_COHORT
                if below is not None and item.priority >= below:
                    may_borrow = False
                elif below is not None:
                    reason = words.WHILE_BORROWING
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
