"""Why a workload cannot wait in any queue, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchyard.api import selectors
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Pool
from torchyard.core.queue.specs import Queue
from torchyard.core.queue.workload_info import Item, Key

Why = tuple[str, str]  # reason, message
Labels = Callable[[str], Mapping[str, str] | None]  # of a namespace; None: there is none


def why_outside(item: Item, doors: Mapping[Key, Object], pools: Mapping[str, Pool], labels_of: Labels) -> Why | None:
    """`doors`: the specs of local queues. None: it can wait, and be admitted."""
    why = why_not_at_door(item, doors)
    return why or _why_not_inside(item.key[0], doors[item.key[0], item.queue].get("clusterQueue", ""), pools, labels_of)


def why_not_at_door(item: Item, doors: Mapping[Key, Object]) -> Why | None:
    """None: it waits at its local queue, whatever there is behind that."""
    if not item.is_active:
        return messages.ON_HOLD, messages.DEACTIVATED
    if item.requeue_at is not None:
        return messages.WAITING_FOR_PODS, "The workload waits before it is queued again"
    namespace = item.key[0]
    door = doors.get((namespace, item.queue))
    if door is None:
        others = sorted(name for where, name in doors if where == namespace)
        said = messages.absent(names.LOCAL_QUEUE.kind, item.queue) + messages.other_queues(", ".join(others))
        return messages.MISCONFIGURED, said
    if door.get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        return messages.SUSPENDED, messages.stopped(names.LOCAL_QUEUE.kind, item.queue)
    return None


def _why_not_inside(namespace: str, name: str, pools: Mapping[str, Pool], labels_of: Labels) -> Why | None:
    pool = pools.get(name)
    if pool is None:
        return messages.MISCONFIGURED, messages.absent(names.CLUSTER_QUEUE.kind, name) + messages.CREATE_IT
    if pool.queue.stop != names.NO_STOP:
        return messages.SUSPENDED, messages.stopped(names.CLUSTER_QUEUE.kind, name)
    if pool.inactive is not None:
        reason, why = pool.inactive
        return (
            messages.MISCONFIGURED,
            f"{messages.inactive(names.CLUSTER_QUEUE.kind, name)}: {why}{messages.fix(reason)}",
        )
    if not _takes(pool.queue, labels_of(namespace)):
        return messages.MISCONFIGURED, messages.namespace_refused(name)
    return None


def _takes(queue: Queue, labels: Mapping[str, str] | None) -> bool:
    if queue.selector is None or labels is None:
        return False
    return selectors.from_object(queue.selector).matches(labels)
