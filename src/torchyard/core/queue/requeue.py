"""Quota was given back: who of those that wait is worth another look.

As many as it can serve, in the order in which they would be served. To look at all of them would cost a cohort of a
hundred queues a hundred looks for every workload that ends, ninety-nine of them in vain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api.queue import names
from torchyard.core.queue.cluster_queue import Lane, Pool
from torchyard.core.queue.quota import Node
from torchyard.core.queue.resources import Amounts, FlavorResource
from torchyard.core.queue.workload_info import Key


class _Candidate(NamedTuple):
    borrows: int
    order: tuple[int, float, Key]
    pool: Pool
    lane: Lane
    keys: list[FlavorResource]  # that are available; none: what it is owed may be reclaimed


def open_lanes(root: Node, pools: Iterable[Pool], *, reclaim: bool) -> tuple[list[Pool], bool]:
    """Open the lanes that may be served now; answers their pools, and whether others were left for a second look.

    `reclaim`: also those that others owe quota to, however little is available.
    """
    found: list[_Candidate] = []
    free: Amounts = {}
    for pool in pools:
        for lane in pool.lanes.values():
            if lane.is_blocked and lane.needs:
                keys = [key for key, need in lane.needs.items() if _is_there(root, pool.node, key, need, free)]
                if keys or (reclaim and _is_owed(pool, lane)):
                    _add(found, pool, lane, keys)
    found.sort(key=lambda one: one[:2])
    opened: dict[Pool, None] = {}
    for one in found:
        if one.keys and not _take(one, free):
            continue
        one.lane.is_blocked = False
        opened[one.pool] = None
    return list(opened), len(found) > len(opened)


def _is_there(root: Node, node: Node, key: FlavorResource, need: int, free: Amounts) -> bool:
    left = free.get(key)
    if left is None:
        left = free[key] = root.available(key)
    if node.parent is root and need > left + max(0, node.guaranteed.get(key, 0) - node.usage.get(key, 0)):
        return False  # what most are told, without a walk up the tree
    return node.available(key) >= need


def _add(found: list[_Candidate], pool: Pool, lane: Lane, keys: list[FlavorResource]) -> None:
    head = lane.head
    if head is not None:
        borrows = max((pool.node.distance(key, lane.needs[key]) for key in keys), default=0)
        found.append(_Candidate(borrows, head.order, pool, lane, keys))


def _is_owed(pool: Pool, lane: Lane) -> bool:
    if pool.queue.preemption.reclaim == names.NEVER or pool.node.parent is None:
        return False
    usage, nominal = pool.node.usage, pool.node.nominal
    return any(usage.get(key, 0) + need <= nominal(key) for key, need in lane.needs.items())


def _take(one: _Candidate, free: Amounts) -> bool:
    """Whether it can still be served after those before it."""
    node, is_served = one.pool.node, False
    for key in one.keys:
        left = free[key]
        own = 0 if node.parent is None else max(0, node.guaranteed.get(key, 0) - node.usage.get(key, 0))
        from_root = max(0, one.lane.needs[key] - own)
        if from_root <= left:
            free[key] = left - from_root
            is_served = True
    return is_served
