"""The statuses of queues, from the book."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Pool
from torchyard.core.queue.resources import Amounts, add, shown
from torchyard.core.queue.state import Book
from torchyard.core.queue.workload_info import Item, Key


def _condition(is_active: bool, reason: str, message: str, now: str) -> Object:
    return {
        "type": messages.ACTIVE,
        "status": "True" if is_active else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def _sum(items: Iterable[Item]) -> Amounts:
    total: Amounts = {}
    for one in items:
        add(total, one.held)
    return total


def _usage(pool: Pool, amounts: Amounts, *, borrowed: bool) -> list[Object]:
    found: list[Object] = []
    for group in pool.queue.groups:
        for flavor in group.flavors:
            resources: list[Object] = []
            for resource in sorted(group.resources):
                total = amounts.get((flavor, resource), 0)
                entry = {"name": resource, "total": shown(resource, total)}
                if borrowed:
                    over = max(0, total - pool.node.nominal((flavor, resource))) if pool.node.parent else 0
                    entry["borrowed"] = shown(resource, over)
                resources.append(entry)
            found.append({"name": flavor, "resources": resources})
    return found


def _counts(items: list[Item], pending: int) -> Object:
    return {
        "pendingWorkloads": pending,
        "reservingWorkloads": len(items),
        "admittedWorkloads": sum(one.is_admitted for one in items),
    }


def cluster_queue_status(pool: Pool, now: str) -> Object:
    holding = list(pool.holding.values())
    why = pool.inactive
    condition = _condition(why is None, *(why or (messages.READY, messages.CAN_ADMIT)), now)
    return {
        "conditions": [condition],
        **_counts(holding, len(pool.waiting)),
        "flavorsReservation": _usage(pool, _sum(holding), borrowed=True),
        "flavorsUsage": _usage(pool, _sum(one for one in holding if one.is_admitted), borrowed=True),
    }


def local_queue_status(key: Key, book: Book, now: str) -> Object:
    spec = book.local[key]
    pool = book.pools.get(spec.get("clusterQueue", ""))
    holding = [one for one in pool.holding.values() if (one.key[0], one.queue) == key] if pool is not None else []
    status: Object = {"conditions": [_local_condition(spec, pool, now)], **_counts(holding, book.pending[key])}
    if pool is not None:
        status["flavorsReservation"] = _usage(pool, _sum(holding), borrowed=False)
        status["flavorsUsage"] = _usage(pool, _sum(one for one in holding if one.is_admitted), borrowed=False)
    return status


def _local_condition(spec: Object, pool: Pool | None, now: str) -> Object:
    if spec.get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        return _condition(False, messages.STOPPED, messages.LOCAL_STOPPED, now)
    if pool is None:
        return _condition(False, messages.QUEUE_MISSING, messages.CANNOT_SUBMIT, now)
    if pool.inactive is not None:
        return _condition(False, messages.QUEUE_INACTIVE, messages.CANNOT_SUBMIT, now)
    return _condition(True, messages.READY, messages.CAN_SUBMIT, now)
