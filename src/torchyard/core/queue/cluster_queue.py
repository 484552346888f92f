"""A ClusterQueue at work: what waits in it, lane by lane, and what holds its quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from torchyard.api.queue import names
from torchyard.core.queue.flavor_assigner import Plan
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.quota import Node
from torchyard.core.queue.requirements import Shape
from torchyard.core.queue.resources import Amounts
from torchyard.core.queue.specs import Queue
from torchyard.core.queue.workload_info import Item, Key

_Entry = tuple[int, float, Key]
_TOO_MANY_GONE = 64


class Lane:
    """Workloads that ask for the same. When the first of them cannot be admitted, none of the others can."""

    __slots__ = ("_gone", "_heap", "is_blocked", "items", "needs", "owed", "plan", "said", "untold")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.items: dict[Key, Item] = {}
        self._heap: list[_Entry] = []
        self._gone = 0
        self.is_blocked = False
        self.said = ("", "")  # while blocked: reason and words for all of it
        self.untold: dict[Key, None] = {}  # those who were never told why they wait
        self.needs: Amounts = {}  # while blocked: with so much of one of these available it is worth another look
        self.owed: Amounts = {}  # while blocked: what it asks for of its queue's own quota and cannot reclaim

    def add(self, item: Item) -> None:
        self.items[item.key] = item
        heappush(self._heap, item.order)
        if not item.told:
            self.untold[item.key] = None

    def discard(self, key: Key) -> None:
        self.untold.pop(key, None)
        if self.items.pop(key, None) is not None:
            self._gone += 1
            if self._gone > _TOO_MANY_GONE and self._gone * 2 > len(self._heap):
                self._heap = [item.order for item in self.items.values()]
                heapify(self._heap)
                self._gone = 0

    def block(self, needs: Amounts, *, owed: Amounts) -> None:
        self.is_blocked, self.needs, self.owed = True, needs, owed

    @property
    def head(self) -> Item | None:
        while self._heap:
            entry = self._heap[0]
            item = self.items.get(entry[2])
            if item is not None and item.order == entry:
                return item
            heappop(self._heap)
            self._gone = max(0, self._gone - 1)
        return None


class Pool:
    def __init__(self, queue: Queue, node: Node, flavors: Mapping[str, Flavor]) -> None:
        self.queue, self.node, self._flavors = queue, node, flavors
        self.lanes: dict[tuple[Shape, Key | None], Lane] = {}
        self.holding: dict[Key, Item] = {}
        self.waiting: dict[Key, Item] = {}
        self.inactive: tuple[str, str] | None = None  # reason and words

    def add(self, item: Item) -> Lane:
        """Answers the lane it waits in."""
        self.waiting[item.key] = item
        lane = self.lanes.get(item.lane)
        if lane is None:
            lane = self.lanes[item.lane] = Lane(self.plan(item.shape))
        before = lane.head
        lane.add(item)
        if lane.is_blocked and lane.head is not before:
            lane.is_blocked = False  # the new first one has a priority that the old one had not
        return lane

    def plan(self, shape: Shape) -> Plan:
        return Plan(shape, self.queue, self._flavors)

    def discard(self, item: Item) -> None:
        if self.waiting.pop(item.key, None) is None:
            return
        lane = self.lanes.get(item.lane)
        if lane is not None:
            before = lane.head
            lane.discard(item.key)
            if not lane.items:
                del self.lanes[item.lane]
            elif before is item:
                lane.is_blocked = False

    def head(self) -> tuple[Lane, Item] | None:
        """The workload to be looked at next: the first of all that may fit, or just the first if order is strict."""
        if self.inactive is not None:
            return None
        best = self._first(self.lanes.values() if self.queue.is_strict else self._open_lanes())
        return None if best is not None and best[0].is_blocked else best

    def kept(self) -> Amounts:
        """What of its own quota a strict queue's first waits for in vain: to be borrowed by nobody meanwhile."""
        first = self._first(self.lanes.values()) if self.inactive is None else None
        if first is None or not first[0].is_blocked:
            return {}
        left = {key: min(amount, self.node.own_left(key)) for key, amount in first[0].owed.items()}
        return {key: amount for key, amount in left.items() if amount > 0}

    def _open_lanes(self) -> Iterator[Lane]:
        return (lane for lane in self.lanes.values() if not lane.is_blocked)

    def _first(self, lanes: Iterable[Lane]) -> tuple[Lane, Item] | None:
        best: tuple[Lane, Item] | None = None
        for lane in lanes:
            item = lane.head
            if item is not None and (best is None or item.order < best[1].order):
                best = lane, item
        return best

    def reconsider_weaker(self, priority: int) -> None:
        """Something of this priority was admitted here, and may be preempted by what comes before it."""
        if self.queue.preemption.within == names.NEVER:
            return
        for lane in self.lanes.values():
            item = lane.head
            if lane.is_blocked and lane.needs and item is not None and item.priority > priority:
                lane.is_blocked = False
