"""Waiting pods that share one answer."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.core.scheduling.node_info import Amounts
from torchyard.core.scheduling.schedule import Unschedulable

Order = tuple[int, str, str]


def order_of(pod: Object) -> Order:
    """Higher priority first, then the older one, as in kube-scheduler's queue."""
    metadata = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), metadata.get("creationTimestamp") or "", metadata["name"]


@dataclass(slots=True, eq=False)
class PodClass:
    """Waiting pods with one answer, or the waiting pods of a gang."""

    key: tuple[object, ...]
    gang: tuple[str, str] | None
    requests: Amounts  # of each pod; of a gang, the smallest amounts
    claims: set[str] = field(default_factory=set)  # namespace/name
    pods: dict[str, Object] = field(default_factory=dict)  # by uid
    answer: Unschedulable | None = None  # the last one
    is_waiting: bool = False  # for a change that could help
    # uids of pods that do not have the last answer yet; from a plain dict, taking the first one is not O(1)
    unreported: OrderedDict[str, None] = field(default_factory=OrderedDict)
    heap: list[tuple[Order, str]] = field(default_factory=list)
    position: Order | None = None  # in the queue's heap
    shape: tuple[object, ...] = ()  # of a gang that waits: gangs of one shape have one answer

    def head(self) -> Object | None:
        """The pod to try next."""
        while self.heap:
            pod = self.pods.get(self.heap[0][1])
            if pod is not None:
                return pod
            heapq.heappop(self.heap)
        return None

    def set_answer(self, answer: Unschedulable) -> None:
        """Every pod gets the answer, unless it is the one that they have."""
        if self.answer is None or str(self.answer) != str(answer):
            self.unreported = OrderedDict.fromkeys(self.pods)
        self.answer = answer
