"""The line in front of a queue, for people: who is where, why, and when it is likely to start."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.workload_info import Item, seconds

_ENOUGH = 3  # ends from which a length is estimated


@dataclass(frozen=True)
class Place:
    item: Item
    cluster_queue: str
    position: int | None  # from 0; None: it does not wait
    state: str
    why: str


@dataclass(frozen=True)
class Estimate:
    after: float  # seconds from now
    error: float  # one standard deviation


def places(workloads: Iterable[Object], cluster_queue_of: dict[tuple[str, str], str]) -> list[Place]:
    """All workloads, those that wait in the order in which their ClusterQueue looks at them."""
    items = sorted((Item(one) for one in workloads), key=lambda one: one.order)
    counts: dict[str, int] = {}
    found: list[Place] = []
    for item in items:
        queue = item.place or cluster_queue_of.get((item.key[0], item.queue), "")
        state, why = _state(item)
        position = None
        if state == "Pending":
            position = counts.get(queue, 0)
            counts[queue] = position + 1
        found.append(Place(item, queue, position, state, why))
    return found


def _state(item: Item) -> tuple[str, str]:
    conditions = (item.obj.get("status") or {}).get("conditions") or ()
    finished = find(conditions, messages.FINISHED)
    if finished is not None and finished["status"] == "True":
        return "Finished", finished["message"]
    if item.place:
        if item.is_evicted:
            return "Evicted", (find(conditions, messages.EVICTED) or {}).get("message", "")
        return ("Admitted", messages.IS_ADMITTED) if item.is_admitted else ("Reserved", messages.CHECKS_NOT_READY)
    reserved = find(conditions, messages.QUOTA_RESERVED)
    why = reserved["message"] if reserved is not None else "not looked at yet"
    return ("Held", why) if not item.is_active else ("Pending", why)


def estimate(place: Place, everything: Iterable[Place], now: float) -> Estimate | None:
    """When a waiting workload starts, if those before it take as long as others took here; None if none have yet.

    As many run at once as do now; each that ends lets the next one in.
    """
    mine = [one for one in everything if one.cluster_queue == place.cluster_queue]
    lengths = [length for one in mine if (length := _length(one.item)) is not None]
    if place.position is None or len(lengths) < _ENOUGH:
        return None
    mean, spread = statistics.mean(lengths), statistics.pstdev(lengths)
    running = [one.item for one in mine if one.state in ("Admitted", "Evicted")]
    ends = sorted(max(0.0, mean - (now - one.reserved_at)) for one in running) or [0.0]
    for _ in range(place.position):
        ends.append(ends.pop(0) + mean)
        ends.sort()
    turns = place.position // max(1, len(ends)) + 1
    return Estimate(ends[0], spread * math.sqrt(turns))


def _length(item: Item) -> float | None:
    """How long a finished workload had its quota."""
    conditions = (item.obj.get("status") or {}).get("conditions") or ()
    finished, admitted = find(conditions, messages.FINISHED), find(conditions, messages.ADMITTED)
    if finished is None or admitted is None or finished["status"] != "True":
        return None
    return max(0.0, seconds(finished["lastTransitionTime"]) - seconds(admitted["lastTransitionTime"]))
