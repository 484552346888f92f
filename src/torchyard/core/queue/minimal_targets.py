"""How many of the workloads that may be preempted have to be: from candidates in order to those that are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResourceQuantities
from torchyard.core.queue.workload_info import WorkloadInfo


class PreemptionTarget(NamedTuple):
    info: WorkloadInfo
    reason: str


_Removed = list[tuple[PreemptionTarget, ClusterQueue]]


class MinimalTargets:
    """The search for a workload with this usage under a node. `shortage`: what is missing without all candidates."""

    def __init__(self, node: QuotaNode, usage: FlavorResourceQuantities) -> None:
        self._node, self._usage = node, usage
        self.shortage: FlavorResourceQuantities = {}

    def find(
        self, removing: Iterator[tuple[PreemptionTarget, ClusterQueue]], *, may_borrow: bool
    ) -> list[PreemptionTarget]:
        """Those of the targets that are needed. `removing` removes the usage of each one before it returns it."""
        removed: _Removed = []
        fits = False
        for target, cq in removing:
            removed.append((target, cq))
            if self._fits(may_borrow=may_borrow):
                fits = True
                break
        if not fits:
            self._record_shortage(may_borrow=may_borrow)
        needed = self._fill_back(removed, may_borrow=may_borrow) if fits else removed
        for target, target_cq in needed:
            target_cq.node.add_usage(target.info.usage)
        return [target for target, _ in needed] if fits else []

    def _record_shortage(self, *, may_borrow: bool) -> None:
        """After all candidates were removed. Of several attempts, the one that lacks least counts."""
        node = self._node
        for key, amount in self._usage.items():
            missing = amount - node.available(key)
            if not may_borrow:
                missing = max(missing, node.usage.get(key, 0) + amount - node.nominal(key))
            if missing > 0:
                self.shortage[key] = min(missing, self.shortage.get(key, missing))

    def _fill_back(self, removed: _Removed, *, may_borrow: bool) -> _Removed:
        """Add back those without which it fits, too; the rest is needed."""
        needed = list(removed)
        for index in range(len(needed) - 2, -1, -1):
            target, cq = needed[index]
            cq.node.add_usage(target.info.usage)
            if self._fits(may_borrow=may_borrow):
                del needed[index]
            else:
                cq.node.remove_usage(target.info.usage)
        return needed

    def _fits(self, *, may_borrow: bool) -> bool:
        node = self._node
        for key, amount in self._usage.items():
            if amount > node.available(key):
                return False
            if not may_borrow and node.usage.get(key, 0) + amount > node.nominal(key):
                return False
        return True
