"""The dominant resource share of a ClusterQueue or cohort: how much it borrows, as Kueue's fair sharing measures it.

For each resource, what a node uses beyond its own quota is divided by what its parent could lend. The largest of these
ratios, divided by the node's weight, is the share. A node that borrows with weight 0 has an infinite share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResource

_PER_MILLE = 1000.0
_NOTHING: frozenset[FlavorResource] = frozenset()
MAX_INT64 = 2**63 - 1


class DominantResourceShare(NamedTuple):
    ratio: float  # per mille of what the parent could lend, before it is divided by the weight
    weight: float
    borrowed: frozenset[FlavorResource]

    @property
    def is_zero(self) -> bool:
        """Also true for a node that borrows only resources of which its cohort lends nothing."""
        return self.ratio == 0

    @property
    def value(self) -> float:
        if self.borrowed and self.weight == 0:
            return math.inf
        return 0.0 if self.ratio == 0 else self.ratio / self.weight

    @property
    def order(self) -> tuple[float, float]:
        """To compare shares: of two infinite ones, the larger ratio is the larger share."""
        return (math.inf, self.ratio) if self.value == math.inf else (self.value, 0.0)

    @property
    def rounded(self) -> int:
        """As statuses show it."""
        return MAX_INT64 if self.value == math.inf else math.ceil(self.value)


def dominant_resource_share(node: QuotaNode) -> DominantResourceShare:
    parent, usage = node.parent, node.usage
    if parent is None:
        return DominantResourceShare(0.0, node.weight, _NOTHING)
    borrowed = [key for key, quota in node.subtree_quota.items() if usage.get(key, 0) > quota]
    if not borrowed:
        return DominantResourceShare(0.0, node.weight, _NOTHING)
    beyond: dict[str, int] = {}
    for key in borrowed:
        beyond[key[1]] = beyond.get(key[1], 0) + usage[key] - node.subtree_quota[key]
    lendable = parent.lendable
    ratios = [
        amount * _PER_MILLE / lendable[resource] for resource, amount in beyond.items() if lendable.get(resource, 0) > 0
    ]
    return DominantResourceShare(max(ratios, default=0.0), node.weight, frozenset(borrowed))


def set_lendable(cohorts: Iterable[QuotaNode]) -> None:
    """Compute what each cohort could lend of each resource. It depends on the configuration only."""
    for cohort in cohorts:
        lendable: dict[str, int] = {}
        for key in cohort.root.subtree_quota:
            lendable[key[1]] = lendable.get(key[1], 0) + cohort.potential_available(key)
        cohort.lendable = lendable
