"""Classes that wait for a change, by what could help them.

So a change looks at what it could help, and not at everything that waits: room on a node is compared with each amount
that classes wait for, and of gangs that no filter can tell apart one is tried for all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.volume import messages as volume_messages
from torchyard.core.scheduling.node_info import Amounts, NodeInfo
from torchyard.core.scheduling.pod_class import Order, PodClass, order_of
from torchyard.core.scheduling.schedule import Unschedulable

_FREED_BY_PODS = frozenset(
    (messages.NODE_PORTS, messages.POD_ANTI_AFFINITY, messages.EXISTING_ANTI_AFFINITY, messages.TOO_MANY_PODS)
)


@dataclass(slots=True)
class _Bucket:
    """Classes that wait for the same amounts; if they are gangs of one shape, only the first of them is tried."""

    amounts: Amounts
    has_one_answer: bool
    classes: dict[PodClass, None] = field(default_factory=dict)
    heap: list[tuple[Order, int, PodClass]] = field(default_factory=list)

    def to_try(self) -> list[PodClass]:
        if not self.has_one_answer:
            return list(self.classes)
        while self.heap:
            pod_class = self.heap[0][2]
            head = pod_class.head()
            if pod_class in self.classes and head is not None and order_of(head) == self.heap[0][0]:
                return [pod_class]
            heapq.heappop(self.heap)
        return []


class WaitingClasses:
    def __init__(self) -> None:
        self._all: dict[PodClass, None] = {}
        self._near_pods: dict[PodClass, None] = {}  # want to be near another pod
        self._alone: dict[PodClass, None] = {}  # want a claim that another pod has
        self._for_room: dict[object, _Bucket] = {}
        self._bucket_of: dict[PodClass, object] = {}
        self._added = 0

    def add(self, pod_class: PodClass) -> None:
        """The class waits, with the answer that it has."""
        self.discard(pod_class)
        self._all[pod_class] = None
        answer = pod_class.answer
        if answer is None:
            return
        if messages.POD_AFFINITY in answer.reasons:
            self._near_pods[pod_class] = None
        if volume_messages.ONE_POD in answer.reasons:
            self._alone[pod_class] = None
        if _could_use_room(answer):
            self._add_for_room(pod_class)

    def _add_for_room(self, pod_class: PodClass) -> None:
        shape = pod_class.shape
        key = ("gang", *shape) if shape else tuple(sorted(pod_class.requests.items()))
        bucket = self._for_room.get(key)
        if bucket is None:
            bucket = self._for_room[key] = _Bucket(pod_class.requests, bool(shape))
        bucket.classes[pod_class] = None
        self._bucket_of[pod_class] = key
        head = pod_class.head()
        if bucket.has_one_answer and head is not None:
            self._added += 1
            heapq.heappush(bucket.heap, (order_of(head), self._added, pod_class))

    def discard(self, pod_class: PodClass) -> None:
        for classes in (self._all, self._near_pods, self._alone):
            classes.pop(pod_class, None)
        key = self._bucket_of.pop(pod_class, None)
        bucket = self._for_room.get(key) if key is not None else None
        if bucket is not None:
            del bucket.classes[pod_class]
            if not bucket.classes:
                del self._for_room[key]

    def all(self) -> list[PodClass]:
        """The classes to try when anything may have changed; those that share an answer are tried by their first."""
        in_buckets = [pod_class for bucket in self._for_room.values() for pod_class in bucket.to_try()]
        return [*(pod_class for pod_class in self._all if pod_class not in self._bucket_of), *in_buckets]

    def helped_by_pod(self) -> list[PodClass]:
        """Classes that a pod on a node may help."""
        return list(self._near_pods)

    def helped_by_room(self, node: NodeInfo) -> list[PodClass]:
        """Classes that may fit now that a pod has left a node."""
        helped = [
            pod_class
            for bucket in self._for_room.values()
            if node.fits(bucket.amounts)
            for pod_class in bucket.to_try()
        ]
        return [*helped, *self._alone]

    def equal_to(self, shape: tuple[object, ...]) -> Iterator[PodClass]:
        """The waiting gangs of a shape."""
        bucket = self._for_room.get(("gang", *shape))
        return iter(list(bucket.classes)) if bucket is not None else iter(())

    def first_of(self, shape: tuple[object, ...]) -> PodClass | None:
        bucket = self._for_room.get(("gang", *shape))
        return next(iter(bucket.to_try()), None) if bucket is not None else None


def _could_use_room(answer: Unschedulable) -> bool:
    return not answer.reasons.isdisjoint(_FREED_BY_PODS) or any(
        messages.insufficient_resource(reason) for reason in answer.reasons
    )
