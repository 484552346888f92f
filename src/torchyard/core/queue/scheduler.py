"""One round of admission: the first of every queue that may fit, in an order that is fair to all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Lane, Pool
from torchyard.core.queue.flavor_assigner import Assignment, Chance, Mode, Outlook
from torchyard.core.queue.nomination import Nominee, replaced_by, without
from torchyard.core.queue.preemption import Target, targets
from torchyard.core.queue.quota import Node, Part, thought_away, thought_given
from torchyard.core.queue.resources import Amounts, FlavorResource
from torchyard.core.queue.state import Book
from torchyard.core.queue.workload_info import Item, Key


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


def cycle(book: Book, now: float) -> list[Decision]:
    """What to do now. Quota that is given is counted in the book at once. Call again while `book.awake` has any."""
    book.refresh()
    decisions: list[Decision] = []
    nominees: list[Nominee] = []
    for name in sorted(book.awake):
        pool = book.pools.get(name)
        nominee = _nominate(book, pool, decisions) if pool is not None else None
        if pool is None:
            del book.awake[name]
        elif nominee is not None:
            nominees.append(nominee)
    roots = {one.pool.node.root for one in nominees}
    claims = book.claims.under(roots)
    taken = {key for one in claims for key in _keys(one.targets)}
    promises = _Promises(book)
    for one in sorted([*nominees, *claims], key=lambda each: each.order):
        if book.claims.has(one):
            promises.add(one)
        elif not taken.isdisjoint(_keys(one.targets)):
            decisions.append(_step_back(book, one, messages.SAME_TARGETS))
        elif not promises.leave_room_for(one):
            if promises.alone_are_against(one):  # else somebody was admitted meanwhile, and it is looked at once more
                decisions.append(_step_back(book, one, messages.NO_LONGER_FITS))
        elif (kept := _kept_from(book, one)) and not promises.leave_room_for(one, kept.values()):
            decisions.append(_bar(book, one, kept))
        elif one.targets:
            taken.update(_keys(one.targets))
            decisions += _preemption(book, one)
            book.claim(one)
            promises.add(one)
        elif book.is_blocked:
            book.hold_back(one.pool)
            decisions.append(Wait(one.item, one.lane, messages.WAITING_FOR_PODS, messages.OTHERS_NOT_READY))
        else:
            if one.replaced is not None:
                book.retire(one.replaced)
            book.assume(one.item, one.pool.queue.name, one.assignment.usage, now)
            decisions.append(Admit(one.item, one.pool.queue.name, one.assignment, one.replaced))
    book.look_again()
    promises.take_back()
    return decisions


class _Promises:
    """What is being freed counts as given to whom it is freed for, beside those who hold it still.

    Kueue lets those who come after have what will be left when all of it is given back; we let them have it if it is
    there now, too, so that no quota is ever exceeded.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._given: dict[Node, list[Part]] = {}  # by root
        self._freed: dict[Node, dict[Key, Part]] = {}

    def add(self, one: Nominee) -> None:
        root = one.pool.node.root
        freed = self._freed.setdefault(root, {})
        gone = _keys(one.targets)
        if one.replaced is not None:
            gone.append(one.replaced.key)
        freed.update(_held_by(self._book, gone))
        self._given.setdefault(root, []).append((one.pool.node, one.assignment.usage))
        one.pool.node.add(one.assignment.usage)

    def leave_room_for(self, one: Nominee, kept: Collection[Part] = ()) -> bool:
        """Whether a workload fits now, or when its targets are gone, and also when all promises are kept.

        `kept`: beside what others keep for themselves.
        """
        with thought_given(kept):
            if not one.targets and one.fits:
                return True
            freed = {**self._freed.get(one.pool.node.root, {}), **_held_by(self._book, _keys(one.targets))}
            return (bool(one.targets) or self.alone_are_against(one)) and _fits_without(one, freed.values())

    def alone_are_against(self, one: Nominee) -> bool:
        """Whether nothing but promises keeps a workload from being admitted, now or when its targets are gone."""
        own = _held_by(self._book, _keys(one.targets)).values()
        return _fits_without(one, [*self._given.get(one.pool.node.root, ()), *own])

    def take_back(self) -> None:
        for parts in self._given.values():
            for node, amounts in parts:
                node.remove(amounts)


def _fits_without(one: Nominee, parts: Collection[Part]) -> bool:
    with thought_away(parts):
        return one.fits


def _keys(gone: list[Target]) -> list[Key]:
    return [target.item.key for target in gone]


def _held_by(book: Book, gone: list[Key]) -> dict[Key, Part]:
    """What they hold, as far as they still do."""
    items = (book.items.get(key) for key in gone)
    held = ((one, book.pools.get(one.place)) for one in items if one is not None)
    return {one.key: (pool.node, one.held) for one, pool in held if pool is not None}


def _nominate(book: Book, pool: Pool, decisions: list[Decision]) -> Nominee | None:
    """The first workload of a pool that fits, with or without preemption; the lanes before it are blocked."""
    found = pool.head()
    claim = book.claim_of(pool, found)
    if claim is not None and not claim.fits:
        book.rests(pool)
        return None
    if claim is not None and found is not None:
        book.end_claim(pool)
        return claim.come_true(*found)
    while found is not None:
        lane, item = found
        replaced = replaced_by(item, pool)
        with without(replaced, pool):
            nominee = _looked_at(book, pool, lane, item, replaced)
        if isinstance(nominee, Nominee):
            return nominee
        decisions.append(nominee)
        found = pool.head()
    book.rests(pool)
    return None


def _looked_at(book: Book, pool: Pool, lane: Lane, item: Item, replaced: Item | None) -> Nominee | Wait:
    only = None if replaced is None else frozenset(flavor for flavor, _ in replaced.held)
    outlook = _outlook(book, item, pool)

    def nominated(assignment: Assignment) -> Nominee | None:
        if assignment.mode is Mode.FIT:
            return Nominee(item, pool, lane, assignment, [], replaced)
        chosen = targets(item, pool, assignment, book.borrowers) if assignment.mode is Mode.PREEMPT else []
        if not chosen:
            return None
        with thought_away(_held_by(book, _keys(chosen)).values()):
            assignment.borrows = pool.node.farthest(assignment.usage)
        return Nominee(item, pool, lane, assignment, chosen, replaced)

    def smaller(counts: Mapping[str, int]) -> Nominee | None:
        return nominated(lane.plan.assign(pool.node, counts, outlook=outlook))

    whole = lane.plan.assign(pool.node, only=only, outlook=outlook)
    nominee = nominated(whole) or lane.plan.largest(smaller)
    if nominee is not None:
        return nominee
    _block(lane, pool, lane.plan.assign_least(pool.node) or whole, replaced)
    lane.said = whole.reason, whole.message
    return Wait(item, lane, *lane.said)


def _outlook(book: Book, item: Item, pool: Pool) -> Outlook:
    """Kueue's oracle: whom a workload could preempt if it asked for nothing but this."""

    def look(key: FlavorResource, amount: int) -> tuple[Chance, int]:
        alone = {key: amount}
        found = targets(item, pool, Assignment(usage=alone, short=alone), book.borrowers)
        with thought_away(_held_by(book, _keys(found)).values()):
            borrows = pool.node.farthest(alone)
        if not found:
            return Chance.NONE, borrows
        is_own = any(target.reason == messages.IN_QUEUE for target in found)
        return Chance.PREEMPTION if is_own else Chance.RECLAMATION, borrows

    return look


def _block(lane: Lane, pool: Pool, assignment: Assignment, replaced: Item | None) -> None:
    held = {} if replaced is None else replaced.held
    needs = lane.plan.needs(pool.node, assignment)
    # As in Kueue: a queue that may take back whatever was borrowed of it lets others borrow meanwhile.
    is_owed = assignment.mode is Mode.PREEMPT and pool.queue.preemption.reclaim != names.ANY
    lane.block(_beyond(needs, held), owed=_beyond(assignment.usage, held) if is_owed else {})


def _beyond(amounts: Amounts, held: Amounts) -> Amounts:
    return {key: amount - held.get(key, 0) for key, amount in amounts.items()} if held else amounts


def _preemption(book: Book, one: Nominee) -> list[Decision]:
    """It waits for all its targets; only those are told to go who were not yet."""
    said = messages.waiting_for_preempted(one.assignment.message, len(one.targets))
    decisions: list[Decision] = [Wait(one.item, one.lane, messages.WAITING_FOR_PREEMPTED, said)]
    fresh = [target for target in one.targets if not target.item.is_evicted]
    if fresh:
        paths = {target.item.key: book.pools[target.item.place].node.path for target in one.targets}
        decisions.append(Preempt(one.item, one.pool.queue.name, fresh, paths, one.pool.node.path))
    for target in fresh:
        target.item.is_evicted = True  # told once
    return decisions


def _kept_from(book: Book, one: Nominee) -> dict[str, Part]:
    """What a workload that borrows leaves to the first of strict queues, whose own it is."""
    return book.kept_from(one.pool) if one.assignment.borrows and not one.has_claim else {}


def _bar(book: Book, one: Nominee, queues: Iterable[str]) -> Wait:
    book.bar(one)
    one.lane.said = messages.WAITING, messages.kept_for(queues)
    return Wait(one.item, one.lane, *one.lane.said)


def _step_back(book: Book, one: Nominee, why: str) -> Wait:
    """Others before it were promised what it needs. As in Kueue, nobody of its queue passes it meanwhile."""
    book.step_back(one.pool)
    one.lane.said = messages.WAITING, why
    return Wait(one.item, one.lane, *one.lane.said)
