"""From how far up the tree of cohorts a quantity comes: which subtree has it, and what its own quota leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities


def lowest_subtree(node: QuotaNode, key: FlavorResource, more: int) -> QuotaNode:
    """The lowest subtree around a node that has `more` unused, the root if none has it."""
    while node.parent is not None and node.usage.get(key, 0) + more > node.subtree_quota.get(key, 0):
        if node.guaranteed:
            more -= node.local_available(key)
        node = node.parent
    return node


def borrowing_height(node: QuotaNode, quantities: Mapping[FlavorResource, int]) -> int:
    """The height of the lowest subtree that has all of it unused: 0 is the node itself."""
    return max((lowest_subtree(node, key, amount).height for key, amount in quantities.items()), default=0)


def needed_from_root(node: QuotaNode, key: FlavorResource, amount: int) -> int:
    """What the guaranteed quotas below the root do not provide of an amount."""
    while node.parent is not None and amount > 0:
        if node.guaranteed:  # seldom: only with a lending limit
            amount -= node.local_available(key)
        node = node.parent
    return max(0, amount)


def fits_in_quota(node: QuotaNode, quantities: Mapping[FlavorResource, int]) -> tuple[bool, FlavorResourceQuantities]:
    """Whether a subtree has all of it unused, and what its guaranteed quota leaves for the parent to provide."""
    usage, subtree_quota = node.usage, node.subtree_quota
    fits = all(usage.get(key, 0) + amount <= subtree_quota.get(key, 0) for key, amount in quantities.items())
    return fits, {key: max(0, amount - node.local_available(key)) for key, amount in quantities.items()}
