"""Fair sharing in a scheduling cycle: the workload whose admission leaves the smallest shares is the next one.

At each cohort, the workloads that its children nominate compete: those whose subtree does not borrow what they request
are first, then those with the smaller dominant resource share, the higher priority, the longer time in the queue. The
shares include what the cycle admitted so far, so each workload is chosen after the one before it was processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import DominantResourceShare, dominant_resource_share
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.quota import NodeUsage, QuotaNode, simulate_addition
from torchyard.core.queue.workload_info import QueueOrder, WorkloadInfo

_Rank = tuple[bool, tuple[float, float], QueueOrder]


class Contender(Protocol):
    """A workload of a cycle."""

    @property
    def cq(self) -> ClusterQueue: ...
    @property
    def info(self) -> WorkloadInfo: ...
    @property
    def assignment(self) -> Assignment: ...


_Entry = TypeVar("_Entry", bound=Contender)


def fair_order(entries: Iterable[_Entry]) -> Iterator[_Entry]:
    """The workloads in the order in which to process them. Each must be processed before the next is taken."""
    by_root: dict[QuotaNode, list[_Entry]] = {}
    for entry in entries:
        by_root.setdefault(entry.cq.node.root, []).append(entry)
    for members in by_root.values():
        remaining = sorted(members, key=lambda entry: entry.info.order)
        while remaining:
            winner = remaining[0] if len(remaining) == 1 else _Tournament(remaining).winner()
            remaining.remove(winner)
            yield winner


class _Tournament(Generic[_Entry]):
    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._children: dict[QuotaNode, dict[QuotaNode, None]] = {}
        self._leaves: dict[QuotaNode, _Entry] = {}
        self._ranks: dict[tuple[QuotaNode, QuotaNode], _Rank] = {}  # by the ClusterQueue and a node above it
        for entry in entries:
            self._leaves.setdefault(entry.cq.node, entry)
        for leaf, entry in self._leaves.items():
            self._add(leaf, entry)

    def _add(self, leaf: QuotaNode, entry: _Entry) -> None:
        """The ranks of a workload as its own queue and each cohort above it nominate it."""
        with simulate_addition([NodeUsage(leaf, entry.assignment.usage)]):
            node = leaf
            while node.parent is not None:
                self._children.setdefault(node.parent, {})[node] = None
                self._ranks[leaf, node] = _rank(entry, dominant_resource_share(node))
                node = node.parent

    def winner(self) -> _Entry:
        root = next(iter(self._leaves)).root
        return self._leaves[self._winner_of(root)]

    def _winner_of(self, node: QuotaNode) -> QuotaNode:
        """The ClusterQueue whose workload a node nominates."""
        if node in self._leaves:
            return node
        nominees = [(self._winner_of(child), child) for child in self._children[node]]
        return min(nominees, key=self._ranks.__getitem__)[0]


def _rank(entry: Contender, share: DominantResourceShare) -> _Rank:
    usage = entry.assignment.usage
    is_borrowing = any(usage.get(key, 0) > 0 for key in share.borrowed)
    return is_borrowing, share.order, entry.info.order
