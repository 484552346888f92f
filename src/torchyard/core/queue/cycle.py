"""One round of admission: the first of every queue that may fit, in an order that is fair to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torchyard.api.queue import words
from torchyard.core.queue.assign import Assignment, Mode
from torchyard.core.queue.book import Book
from torchyard.core.queue.items import Item, Key
from torchyard.core.queue.pool import Lane, Pool
from torchyard.core.queue.preempt import Target, targets


@dataclass(frozen=True)
class Admit:
    item: Item
    queue: str
    assignment: Assignment
    replaced: Item | None = None  # whose quota it takes over


@dataclass(frozen=True)
class Preempt:
    """Evict these, and wait for what they give back."""

    item: Item
    queue: str
    targets: list[Target]
    paths: dict[Key, str]  # where each target is in the tree of quota
    path: str


@dataclass(frozen=True)
class Wait:
    """This one and all that wait for the same behind it."""

    item: Item
    lane: Lane
    reason: str
    message: str


Decision = Admit | Preempt | Wait


@dataclass
class _Nominee:
    item: Item
    pool: Pool
    lane: Lane
    assignment: Assignment
    targets: list[Target]
    replaced: Item | None

    @property
    def order(self) -> tuple[int, int, float, Key]:
        return self.assignment.borrows, *self.item.order


def cycle(book: Book, now: float) -> list[Decision]:
    """What to do now. Quota that is given is counted in the book at once. Call again while `book.awake` has any."""
    book.refresh()
    decisions: list[Decision] = []
    nominees: list[_Nominee] = []
    for name in sorted(book.awake):
        pool = book.pools.get(name)
        nominee = _nominate(book, pool, decisions) if pool is not None else None
        if pool is None:
            del book.awake[name]
        elif nominee is not None:
            nominees.append(nominee)
    taken: set[Key] = set()
    promised: list[_Nominee] = []
    for first in sorted(nominees, key=lambda each: each.order):
        one = first if _is_current(first) else _nominate(book, first.pool, decisions)
        if one is None:
            continue
        if not one.targets and book.is_blocked:
            book.hold_back(one.pool)
            decisions.append(Wait(one.item, one.lane, words.WAITING_FOR_PODS, words.OTHERS_NOT_READY))
        elif not one.targets:
            if one.replaced is not None:
                book.retire(one.replaced)
            book.assume(one.item, one.pool.queue.name, one.assignment.usage, now)
            decisions.append(Admit(one.item, one.pool.queue.name, one.assignment, one.replaced))
        elif taken.isdisjoint(target.item.key for target in one.targets):
            taken.update(target.item.key for target in one.targets)
            decisions.append(_preemption(book, one))
            _block(one.lane, one.pool, one.assignment, one.replaced)
            # Nobody else of this round takes what is being freed.
            one.pool.node.add(one.assignment.usage)
            promised.append(one)
    book.look_again()
    for one in promised:
        one.pool.node.remove(one.assignment.usage)
    return decisions


def _nominate(book: Book, pool: Pool, decisions: list[Decision]) -> _Nominee | None:
    """The first workload of a pool that fits, with or without preemption; the lanes before it are blocked."""
    while (found := pool.head()) is not None:
        lane, item = found
        replaced = book.replaced_by(item, pool)
        with _without(replaced, pool):
            nominee = _looked_at(book, pool, lane, item, replaced)
        if isinstance(nominee, _Nominee):
            return nominee
        decisions.append(nominee)
    book.rests(pool)
    return None


def _looked_at(book: Book, pool: Pool, lane: Lane, item: Item, replaced: Item | None) -> _Nominee | Wait:
    only = None if replaced is None else frozenset(flavor for flavor, _ in replaced.held)
    assignment = lane.plan.assign(pool.node, only=only)
    if assignment.mode is Mode.FIT:
        return _Nominee(item, pool, lane, assignment, [], replaced)
    if assignment.mode is Mode.PREEMPT:
        chosen = targets(item, pool, assignment, book.neighbours(pool))
        if chosen:
            return _Nominee(item, pool, lane, assignment, chosen, replaced)
    smaller = lane.plan.assign_partly(pool.node)
    if smaller is not None:
        return _Nominee(item, pool, lane, smaller, [], replaced)
    _block(lane, pool, lane.plan.assign_least(pool.node) or assignment, replaced)
    lane.said = assignment.reason, assignment.message
    return Wait(item, lane, *lane.said)


@contextmanager
def _without(replaced: Item | None, pool: Pool) -> Iterator[None]:
    """Quotas as they are when a workload gives its own to the next of its job."""
    if replaced is None:
        yield
        return
    pool.node.remove(replaced.held)
    try:
        yield
    finally:
        pool.node.add(replaced.held)


def _block(lane: Lane, pool: Pool, assignment: Assignment, replaced: Item | None) -> None:
    needs = lane.plan.needs(pool.node, assignment)
    if replaced is not None:
        needs = {key: amount - replaced.held.get(key, 0) for key, amount in needs.items()}
    lane.is_blocked, lane.needs = True, needs


def _is_current(nominee: _Nominee) -> bool:
    """Whether it still fits, after what was given away earlier in this round."""
    if nominee.targets:
        return True
    available = nominee.pool.node.available
    with _without(nominee.replaced, nominee.pool):
        return all(amount <= available(key) for key, amount in nominee.assignment.usage.items())


def _preemption(book: Book, one: _Nominee) -> Decision:
    fresh = [target for target in one.targets if not target.item.is_evicted]
    if not fresh:
        return Wait(one.item, one.lane, words.WAITING_FOR_PREEMPTED, words.waiting_for_preempted(len(one.targets)))
    paths = {target.item.key: book.pools[target.item.place].node.path for target in one.targets}
    for target in fresh:
        target.item.is_evicted = True  # told once
    return Preempt(one.item, one.pool.queue.name, fresh, paths, one.pool.node.path)
