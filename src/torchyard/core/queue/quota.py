"""The tree of quota: queues under cohorts, what each has, lends, borrows and uses.

A node keeps `guaranteed` for itself and lends the rest to its parent. Usage beyond the guaranteed part is counted at
the parent too, so that what is available anywhere is a sum along one path, never over all members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from torchyard.core.queue.resources import Amounts, FlavorResource


@dataclass(frozen=True)
class Quota:
    nominal: int
    borrowing: int | None = None
    lending: int | None = None


_NOTHING = Quota(0)


class Node:
    """A queue or a cohort. `usage` changes all the time, everything else when the configuration does."""

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota]) -> None:
        self.name = name
        self.quotas = quotas
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.subtree: Amounts = {}
        self.guaranteed: Amounts = {}
        self.usage: Amounts = {}

    @property
    def root(self) -> Node:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def path(self) -> str:
        return f"{self.parent.path}/{self.name}" if self.parent is not None else f"/{self.name}"

    def attach_to(self, parent: Node) -> None:
        self.parent = parent
        parent.children.append(self)

    def settle(self) -> None:
        """Work out what this subtree has, from the leaves up; afterwards a node knows its parent only.

        So a tree that is built anew is gone at once, and not when somebody looks for garbage.
        """
        self.subtree = {key: quota.nominal for key, quota in self.quotas.items()}
        for child in self.children:
            child.settle()
            for key, amount in child.subtree.items():
                self.subtree[key] = self.subtree.get(key, 0) + amount - child.guaranteed.get(key, 0)
        self.children = []
        lending = {key: quota.lending for key, quota in self.quotas.items() if quota.lending is not None}
        self.guaranteed = {key: max(0, self.subtree.get(key, 0) - limit) for key, limit in lending.items()}

    def available(self, key: FlavorResource) -> int:
        """What can be used more, borrowed quota included; negative when more is used than there is now."""
        used, whole = self.usage.get(key, 0), self.subtree.get(key, 0)
        if self.parent is None:
            return whole - used
        own = self.guaranteed.get(key, 0)
        from_parent = self.parent.available(key)
        limit = self.quotas.get(key, _NOTHING).borrowing
        if limit is not None:
            from_parent = min(from_parent, whole - own - max(0, used - own) + limit)
        return max(0, own - used) + from_parent

    def capacity(self, key: FlavorResource) -> int:
        """The most that can ever be used."""
        whole = self.subtree.get(key, 0)
        if self.parent is None:
            return whole
        most = self.guaranteed.get(key, 0) + self.parent.capacity(key)
        limit = self.quotas.get(key, _NOTHING).borrowing
        return most if limit is None else min(most, whole + limit)

    def nominal(self, key: FlavorResource) -> int:
        return self.quotas.get(key, _NOTHING).nominal

    def own_left(self, key: FlavorResource) -> int:
        """What of its nominal quota this queue does not use."""
        return self.nominal(key) - self.usage.get(key, 0)

    def is_borrowing(self, key: FlavorResource) -> bool:
        return self.parent is not None and self.usage.get(key, 0) > self.subtree.get(key, 0)

    def distance(self, key: FlavorResource, more: int) -> int:
        """How far up `more` would have to be borrowed from: 0 from nobody, 1 within the cohort, and so on."""
        level, node = 0, self
        while node.parent is not None and node.usage.get(key, 0) + more > node.subtree.get(key, 0):
            more = node.usage.get(key, 0) + more - node.subtree.get(key, 0)
            level, node = level + 1, node.parent
        return level

    def farthest(self, amounts: Mapping[FlavorResource, int]) -> int:
        return max((self.distance(key, amount) for key, amount in amounts.items()), default=0)

    def add(self, amounts: Mapping[FlavorResource, int]) -> None:
        for key, amount in amounts.items():
            self._add(key, amount)

    def remove(self, amounts: Mapping[FlavorResource, int]) -> None:
        for key, amount in amounts.items():
            self._remove(key, amount)

    def _add(self, key: FlavorResource, amount: int) -> None:
        used = self.usage.get(key, 0)
        self.usage[key] = used + amount
        beyond = amount - max(0, self.guaranteed.get(key, 0) - used)
        if self.parent is not None and beyond > 0:
            self.parent._add(key, beyond)

    def _remove(self, key: FlavorResource, amount: int) -> None:
        used = self.usage.get(key, 0)
        self.usage[key] = used - amount
        at_parent = used - self.guaranteed.get(key, 0)
        if self.parent is not None and at_parent > 0:
            self.parent._remove(key, min(amount, at_parent))


Part = tuple[Node, Amounts]  # what somebody holds, and where
_Change = Callable[[Node, Amounts], None]


def thought_away(parts: Collection[Part]) -> AbstractContextManager[None]:
    """Quotas as they are when these have been given back."""
    return _for_now(parts, Node.remove, Node.add)


def thought_given(parts: Collection[Part]) -> AbstractContextManager[None]:
    """Quotas as they are when these are held, too."""
    return _for_now(parts, Node.add, Node.remove)


@contextmanager
def _for_now(parts: Collection[Part], do: _Change, undo: _Change) -> Iterator[None]:
    for node, amounts in parts:
        do(node, amounts)
    try:
        yield
    finally:
        for node, amounts in parts:
            undo(node, amounts)


def cycles(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """The cohorts that cannot be under a root, since following their parents comes back: each with its cycle."""
    found: dict[str, list[str]] = {}
    for start in parents:
        seen: list[str] = []
        at = start
        while at in parents and at not in seen:
            seen.append(at)
            at = parents[at]
        if at in seen:
            found[start] = [*seen[seen.index(at) :], at]
    return found
