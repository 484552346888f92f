"""The quota of ClusterQueues and cohorts: what each has, lends, borrows and uses.

A node keeps its guaranteed quota for itself and lends the rest to its parent. Usage beyond the guaranteed quota also
counts at the parent, so what is available at a node is a sum along one path to the root, never over all members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities


@dataclass(frozen=True)
class Quota:
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota(0)


class QuotaNode:
    """A ClusterQueue or a cohort. `usage` changes all the time, everything else only with the configuration."""

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota], weight: float = 1.0) -> None:
        """`weight`: of its share of what its parent lends."""
        self.name = name
        self.quotas = quotas
        self.weight = weight
        self.parent: QuotaNode | None = None
        self._children: list[QuotaNode] = []
        self.subtree_quota: FlavorResourceQuantities = {}
        self.guaranteed: FlavorResourceQuantities = {}
        self.usage: FlavorResourceQuantities = {}
        self.height = 0  # the distance to the farthest leaf
        self.lendable: dict[str, int] = {}  # what a cohort could lend of each resource; only with fair sharing

    @property
    def root(self) -> QuotaNode:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def path(self) -> str:
        return f"{self.parent.path}/{self.name}" if self.parent is not None else f"/{self.name}"

    def attach_to(self, parent: QuotaNode) -> None:
        self.parent = parent
        parent._children.append(self)

    def compute_subtree_quota(self) -> None:
        """Sum up the quota of this subtree from the leaves up, and drop the references to the children.

        Afterwards a node refers to its parent only. So a hierarchy that was replaced is freed at once, without waiting
        for the garbage collector to find cycles.
        """
        self.subtree_quota = {key: quota.nominal for key, quota in self.quotas.items()}
        self.height = 0
        for child in self._children:
            child.compute_subtree_quota()
            self.height = max(self.height, child.height + 1)
            for key, amount in child.subtree_quota.items():
                self.subtree_quota[key] = self.subtree_quota.get(key, 0) + amount - child.guaranteed.get(key, 0)
        self._children = []
        limits = {key: quota.lending_limit for key, quota in self.quotas.items() if quota.lending_limit is not None}
        self.guaranteed = {key: max(0, self.subtree_quota.get(key, 0) - limit) for key, limit in limits.items()}

    def available(self, key: FlavorResource) -> int:
        """How much more can be used, borrowed quota included. Negative when the quota was reduced below the usage."""
        return self.available_with(key, 0 if self.parent is None else self.parent.available(key))

    def available_with(self, key: FlavorResource, from_parent: int) -> int:
        """`available`, where what is available at the parent is known."""
        used, subtree = self.usage.get(key, 0), self.subtree_quota.get(key, 0)
        if self.parent is None:
            return subtree - used
        guaranteed = self.guaranteed.get(key, 0)
        limit = self.quotas.get(key, NO_QUOTA).borrowing_limit
        if limit is not None:
            from_parent = min(from_parent, subtree - guaranteed - max(0, used - guaranteed) + limit)
        return max(0, guaranteed - used) + from_parent

    def potential_available(self, key: FlavorResource) -> int:
        """How much could be used if nothing else ran."""
        subtree = self.subtree_quota.get(key, 0)
        if self.parent is None:
            return subtree
        maximum = self.guaranteed.get(key, 0) + self.parent.potential_available(key)
        limit = self.quotas.get(key, NO_QUOTA).borrowing_limit
        return maximum if limit is None else min(maximum, subtree + limit)

    def nominal(self, key: FlavorResource) -> int:
        return self.quotas.get(key, NO_QUOTA).nominal

    def is_borrowing_any(self, keys: Iterable[FlavorResource]) -> bool:
        """Whether more of one of these is used than this subtree has."""
        usage, subtree_quota = self.usage, self.subtree_quota
        return any(usage.get(key, 0) > subtree_quota.get(key, 0) for key in keys)

    def local_available(self, key: FlavorResource) -> int:
        """The unused part of the guaranteed quota, which the parent does not see."""
        return max(0, self.guaranteed.get(key, 0) - self.usage.get(key, 0))

    def add_usage(self, quantities: Mapping[FlavorResource, int]) -> None:
        for key, amount in quantities.items():
            self._add(key, amount)

    def remove_usage(self, quantities: Mapping[FlavorResource, int]) -> None:
        for key, amount in quantities.items():
            self._remove(key, amount)

    def _add(self, key: FlavorResource, amount: int) -> None:
        used = self.usage.get(key, 0)
        self.usage[key] = used + amount
        beyond_guaranteed = amount - max(0, self.guaranteed.get(key, 0) - used)
        if self.parent is not None and beyond_guaranteed > 0:
            self.parent._add(key, beyond_guaranteed)

    def _remove(self, key: FlavorResource, amount: int) -> None:
        used = self.usage.get(key, 0)
        self.usage[key] = used - amount
        at_parent = used - self.guaranteed.get(key, 0)
        if self.parent is not None and at_parent > 0:
            self.parent._remove(key, min(amount, at_parent))


class NodeUsage(NamedTuple):
    """Quota that a workload uses at a node."""

    node: QuotaNode
    quantities: FlavorResourceQuantities


_Change = Callable[[QuotaNode, FlavorResourceQuantities], None]


class _Simulation:
    """Usages that are added or removed inside a context. A generator as context manager would take twice as long."""

    __slots__ = ("_do", "_undo", "_usages")

    def __init__(self, usages: Collection[NodeUsage], do: _Change, undo: _Change) -> None:
        self._usages, self._do, self._undo = usages, do, undo

    def __enter__(self) -> None:
        for node, quantities in self._usages:
            self._do(node, quantities)

    def __exit__(self, *_: object) -> None:
        for node, quantities in self._usages:
            self._undo(node, quantities)


def simulate_removal(usages: Collection[NodeUsage]) -> AbstractContextManager[None]:
    """Inside the context the quotas are as if these usages were gone."""
    return _Simulation(usages, QuotaNode.remove_usage, QuotaNode.add_usage)


def simulate_addition(usages: Collection[NodeUsage]) -> AbstractContextManager[None]:
    """Inside the context the quotas are as if these usages were there, too."""
    return _Simulation(usages, QuotaNode.add_usage, QuotaNode.remove_usage)
