"""Pods that wait for a node: which to try next, and which to try again when something has changed.

Pods that the scheduler cannot tell apart form a class and share one answer: if the first of them does not fit, none
does. A class that does not fit waits until a change could help it, by the reasons why it did not fit (kube-scheduler's
queueing hints). So the cost of a change grows with the number of classes, not with the number of pods that wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.core.scheduling.node_info import Amounts, NodeInfo, requests, uid_of
from torchyard.core.scheduling.schedule import Unschedulable, gang_of

Order = tuple[int, str, str]

_FREED_BY_PODS = frozenset(
    (messages.NODE_PORTS, messages.POD_ANTI_AFFINITY, messages.EXISTING_ANTI_AFFINITY, messages.TOO_MANY_PODS)
)


@dataclass(slots=True, eq=False)
class PodClass:
    """Waiting pods with one answer, or the waiting pods of a gang."""

    key: tuple[object, ...]
    gang: tuple[str, str] | None
    requests: Amounts
    claims: frozenset[str]  # namespace/name
    pods: dict[str, Object] = field(default_factory=dict)  # by uid
    answer: Unschedulable | None = None  # the last one
    is_waiting: bool = False  # for a change that could help
    # uids of pods that do not have the last answer yet; from a plain dict, taking the first one is not O(1)
    unreported: OrderedDict[str, None] = field(default_factory=OrderedDict)
    heap: list[tuple[Order, str]] = field(default_factory=list)
    position: Order | None = None  # in the queue's heap

    def head(self) -> Object | None:
        """The pod to try next."""
        while self.heap:
            pod = self.pods.get(self.heap[0][1])
            if pod is not None:
                return pod
            heapq.heappop(self.heap)
        return None


class SchedulingQueue:
    """`claims_of` returns the names of the claims that a pod uses."""

    def __init__(self, claims_of: Callable[[Object], Iterable[str]]) -> None:
        self._claims_of = claims_of
        self._classes: dict[tuple[object, ...], PodClass] = {}
        self._class_of: dict[str, PodClass] = {}
        self._by_claim: dict[str, set[PodClass]] = {}
        self._by_labels: set[tuple[object, ...]] = set()  # classes that are divided by labels
        self._active: list[tuple[Order, int, PodClass]] = []
        self._pushed = 0
        self._unreported: OrderedDict[PodClass, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._class_of)

    @property
    def class_count(self) -> int:
        return len(self._classes)

    # Pods

    def put(self, pod: Object) -> None:
        """Add a pod, or take its newer version."""
        uid = uid_of(pod)
        key = self._key(pod)
        known = self._class_of.get(uid)
        if known is not None and known.key != key:
            self.remove(uid)
            known = None
        if known is not None:
            known.pods[uid] = pod
            return
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._add_class(key, pod)
        self._class_of[uid] = pod_class
        pod_class.pods[uid] = pod
        heapq.heappush(pod_class.heap, (order_of(pod), uid))
        if pod_class.gang is not None:
            self.activate(pod_class)  # a new member may complete it
        elif not pod_class.is_waiting:
            self._push(pod_class)
        elif pod_class.answer is not None:
            pod_class.unreported[uid] = None
            self._unreported[pod_class] = None

    def remove(self, uid: str) -> None:
        """The pod no longer waits: it is bound, about to be, or gone."""
        pod_class = self._class_of.pop(uid, None)
        if pod_class is None:
            return
        del pod_class.pods[uid]
        pod_class.unreported.pop(uid, None)
        if not pod_class.pods:
            self._remove_class(pod_class)
        elif pod_class.gang is not None:
            self.activate(pod_class)
        elif not pod_class.is_waiting:
            self._push(pod_class)

    # What to try

    def pop(self) -> PodClass | None:
        """The class whose first pod has the highest priority; None if nothing is left to try."""
        while self._active:
            order, _, pod_class = heapq.heappop(self._active)
            if pod_class.position == order:
                pod_class.position = None
                if pod_class.pods and not pod_class.is_waiting:
                    return pod_class
        return None

    def set_answer(self, pod_class: PodClass, answer: Unschedulable | None) -> None:
        """The class does not fit; None: it waits for a change without a reason that concerns its pods."""
        pod_class.is_waiting = True
        if answer is None:
            return
        if messages.EXISTING_ANTI_AFFINITY in answer.reasons and pod_class.gang is None:
            pod_class = self._divide(pod_class)
        if pod_class.answer is None or str(pod_class.answer) != str(answer):
            pod_class.unreported = OrderedDict.fromkeys(pod_class.pods)
        pod_class.answer = answer
        if pod_class.unreported:
            self._unreported[pod_class] = None

    def activate(self, pod_class: PodClass) -> None:
        pod_class.is_waiting = False
        self._push(pod_class)

    def park(self, uid: str) -> None:
        """Let a pod wait for a change of its claims."""
        pod_class = self._class_of.get(uid)
        if pod_class is not None:
            pod_class.is_waiting = True

    # Changes that could help

    def nodes_changed(self) -> None:
        """A node is new, or takes more pods than before."""
        for pod_class in self._waiting():
            self.activate(pod_class)

    def room_freed(self, node: NodeInfo) -> None:
        """A pod left a node."""
        for pod_class in self._waiting():
            answer = pod_class.answer
            if answer is None:
                continue
            if pod_class.gang is not None or pod_class.claims:
                self.activate(pod_class)  # a gang needs room on several nodes; a claim may allow one pod at a time
            elif _could_use_room(answer) and node.fits(pod_class.requests):
                self.activate(pod_class)

    def pod_assigned(self) -> None:
        """A pod is new on a node, and others may want to be near it."""
        for pod_class in self._waiting():
            if pod_class.answer is not None and messages.POD_AFFINITY in pod_class.answer.reasons:
                self.activate(pod_class)

    def gang_changed(self, gang: tuple[str, str]) -> None:
        pod_class = self._classes.get(("gang", *gang))
        if pod_class is not None:
            self.activate(pod_class)

    def claim_changed(self, namespace: str, name: str) -> None:
        for pod_class in self._by_claim.get(f"{namespace}/{name}", ()):
            self.activate(pod_class)

    # Reports

    def next_report(self) -> tuple[Object, str] | None:
        """A pod that does not have its last answer yet, and the answer."""
        while self._unreported:
            pod_class = next(iter(self._unreported))
            if not pod_class.unreported or pod_class.answer is None:
                del self._unreported[pod_class]
                continue
            uid, _ = pod_class.unreported.popitem(last=False)
            return pod_class.pods[uid], str(pod_class.answer)
        return None

    def report_again(self, uid: str) -> None:
        """The answer could not be written."""
        pod_class = self._class_of.get(uid)
        if pod_class is not None and pod_class.answer is not None:
            pod_class.unreported[uid] = None
            self._unreported[pod_class] = None

    # Classes

    def _waiting(self) -> Iterator[PodClass]:
        return iter([pod_class for pod_class in self._classes.values() if pod_class.is_waiting])

    def _push(self, pod_class: PodClass) -> None:
        head = pod_class.head()
        if head is None:
            return
        order = order_of(head)
        if pod_class.position != order:
            pod_class.position = order
            self._pushed += 1
            heapq.heappush(self._active, (order, self._pushed, pod_class))

    def _key(self, pod: Object) -> tuple[object, ...]:
        gang = gang_of(pod)
        if gang is not None:
            return ("gang", *gang)
        key = ("pods", _scheduling_fields(pod, self._claims_of(pod)))
        return (*key, _labels(pod)) if key in self._by_labels else key

    def _add_class(self, key: tuple[object, ...], pod: Object) -> PodClass:
        namespace = pod["metadata"].get("namespace", "")
        gang = gang_of(pod)
        claims = frozenset(f"{namespace}/{name}" for name in self._claims_of(pod))
        pod_class = self._classes[key] = PodClass(key, gang, requests(pod), claims)
        for claim in claims:
            self._by_claim.setdefault(claim, set()).add(pod_class)
        return pod_class

    def _remove_class(self, pod_class: PodClass) -> None:
        del self._classes[pod_class.key]
        self._unreported.pop(pod_class, None)
        for claim in pod_class.claims:
            classes = self._by_claim[claim]
            classes.discard(pod_class)
            if not classes:
                del self._by_claim[claim]

    def _divide(self, pod_class: PodClass) -> PodClass:
        """Pods on the nodes exclude others by their labels: from now on, only pods with equal labels share an answer.

        Returns the class of the pod that was tried.
        """
        if len(pod_class.key) > 2:
            return pod_class
        head = pod_class.head()
        self._by_labels.add(pod_class.key)
        pods = list(pod_class.pods.values())
        for pod in pods:
            self.remove(uid_of(pod))
        for pod in pods:
            self.put(pod)
        if head is None:
            return pod_class
        divided = self._class_of[uid_of(head)]
        divided.is_waiting = True
        return divided


def _could_use_room(answer: Unschedulable) -> bool:
    return not answer.reasons.isdisjoint(_FREED_BY_PODS) or any(
        messages.insufficient_resource(reason) for reason in answer.reasons
    )


def order_of(pod: Object) -> Order:
    """Higher priority first, then the older one, as in kube-scheduler's queue."""
    metadata = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), metadata.get("creationTimestamp") or "", metadata["name"]


def _scheduling_fields(pod: Object, claims: Iterable[str]) -> bytes:
    """What the filters look at, as a value that can be compared."""
    spec = pod["spec"]
    affinity = spec.get("affinity")
    matters_by_labels = bool(affinity and (affinity.get("podAffinity") or affinity.get("podAntiAffinity")))
    fields = (
        pod["metadata"].get("namespace"),
        spec.get("nodeSelector"),
        affinity,
        spec.get("tolerations"),
        spec.get("overhead"),
        [_container_fields(container) for container in spec.get("containers") or ()],
        [_container_fields(container) for container in spec.get("initContainers") or ()],
        sorted(claims),
        pod["metadata"].get("labels") if matters_by_labels else None,
    )
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _container_fields(container: Object) -> tuple[object, ...]:
    ports = [port for port in container.get("ports") or () if port.get("hostPort")]
    return container.get("resources"), container.get("restartPolicy"), ports


def _labels(pod: Object) -> bytes:
    return orjson.dumps(pod["metadata"].get("labels"), option=orjson.OPT_SORT_KEYS)
