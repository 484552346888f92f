"""Fair sharing in a scheduling cycle: the workload whose admission leaves the smallest shares is the next one.

At each cohort, the workloads that its children nominate compete: those whose subtree does not borrow what they request
are first, then those with the smaller dominant resource share, the higher priority, the longer time in the queue. The
shares include what the cycle admitted so far, so each workload is chosen after the one before it was processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import DominantResourceShare, dominant_resource_share
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.quota import NodeUsage, QuotaNode, simulate_addition
from torchyard.core.queue.workload_info import Key, QueueOrder, WorkloadInfo

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
    for root, members in by_root.items():
        tournament = _Tournament(members)
        while (winner := tournament.nominee(root)) is not None:
            usage = winner.cq.node.usage
            before = dict(usage)
            yield winner
            tournament.remove(winner, has_changed=usage != before)


class _Tournament(Generic[_Entry]):
    """Which workload each node nominates.

    A nominee depends on the usage below its node only. So when a workload was processed, those of the nodes above it
    are chosen anew, and all others stay. Most workloads get nothing, and then the ranks stay, too.
    """

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._entries: dict[QuotaNode, deque[_Entry]] = {}  # by ClusterQueue, in order
        self._children: dict[QuotaNode, dict[QuotaNode, None]] = {}
        self._nominees: dict[QuotaNode, _Entry | None] = {}
        self._ranks: dict[QuotaNode, dict[Key, _Rank]] = {}  # of workloads below a node, among those of its parent
        for entry in sorted(entries, key=lambda entry: entry.info.order):
            node = entry.cq.node
            self._entries.setdefault(node, deque()).append(entry)
            while node.parent is not None:
                self._children.setdefault(node.parent, {})[node] = None
                node = node.parent

    def nominee(self, node: QuotaNode) -> _Entry | None:
        if node not in self._nominees:
            self._nominees[node] = self._choose(node)
        return self._nominees[node]

    def remove(self, entry: _Entry, *, has_changed: bool) -> None:
        """A workload was processed.

        `has_changed`: whether that changed the usage of its queue, and so of all cohorts above it.
        """
        self._entries[entry.cq.node].popleft()
        node: QuotaNode | None = entry.cq.node
        while node is not None:
            self._nominees.pop(node, None)
            if has_changed:
                self._ranks.pop(node, None)
            node = node.parent

    def _choose(self, node: QuotaNode) -> _Entry | None:
        if node in self._entries:
            return self._entries[node][0] if self._entries[node] else None
        nodes = [child for child in self._children.get(node, ()) if self.nominee(child) is not None]
        return self.nominee(min(nodes, key=self._rank)) if nodes else None

    def _rank(self, node: QuotaNode) -> _Rank:
        entry = self._nominees[node]
        if entry is None:
            raise LookupError(f"{node.name} has no nominee")
        key = entry.info.key
        if key not in self._ranks.get(node, ()):
            self._compute_ranks(entry)
        return self._ranks[node][key]

    def _compute_ranks(self, entry: _Entry) -> None:
        """At all nodes above a workload: its usage is simulated only once."""
        key, node = entry.info.key, entry.cq.node
        with simulate_addition([NodeUsage(node, entry.assignment.usage)]):
            while node.parent is not None:
                ranks = self._ranks.setdefault(node, {})
                if key not in ranks:
                    ranks[key] = _rank(entry, dominant_resource_share(node))
                node = node.parent


def _rank(entry: Contender, share: DominantResourceShare) -> _Rank:
    usage = entry.assignment.usage
    is_borrowing = any(usage.get(key, 0) > 0 for key in share.borrowed)
    return is_borrowing, share.order, entry.info.order
