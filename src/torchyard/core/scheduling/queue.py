"""Pods that wait for a node: which to try next, and which to try again when something has changed.

Pods that the scheduler cannot tell apart form a class and share one answer: if the first of them does not fit, none
does. A class that does not fit waits until a change could help it, by the reasons why it did not fit (kube-scheduler's
queueing hints). So the cost of a change grows with the number of classes, not with the number of pods that wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable

import orjson

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.core.scheduling.node_info import NodeInfo, requests, uid_of
from torchyard.core.scheduling.pod_class import Order, PodClass, order_of
from torchyard.core.scheduling.schedule import GANG_SIZE, Unschedulable, gang_of
from torchyard.core.scheduling.waiting import WaitingClasses

# The metadata on which the class of a pod depends.
_CLASS_METADATA = ("labels", "annotations")


class SchedulingQueue:
    """`claims_of` returns the names of the claims that a pod uses."""

    def __init__(self, claims_of: Callable[[Object], Iterable[str]]) -> None:
        self._claims_of = claims_of
        self._classes: dict[tuple[object, ...], PodClass] = {}
        self._class_of: dict[str, PodClass] = {}
        self._by_claim: dict[str, set[PodClass]] = {}
        self._waiting = WaitingClasses()
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
        known = self._class_of.get(uid)
        if known is not None and _is_alike(known.pods[uid], pod):
            known.pods[uid] = pod
            return
        key = self._key(pod)
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
        self._add_claims(pod_class, pod)
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
        if answer is None:
            self._wait(pod_class)
            return
        if messages.EXISTING_ANTI_AFFINITY in answer.reasons and pod_class.gang is None:
            pod_class = self._divide(pod_class)
        if pod_class.gang is not None:
            pod_class.shape = self._shape(pod_class, answer)
            pod_class.requests = _smallest(pod_class.pods.values())
            for equal in self._waiting.equal_to(pod_class.shape):
                self._take_answer(equal, answer)
        self._take_answer(pod_class, answer)
        self._wait(pod_class)

    def _take_answer(self, pod_class: PodClass, answer: Unschedulable) -> None:
        pod_class.set_answer(answer)
        if pod_class.unreported:
            self._unreported[pod_class] = None

    def _wait(self, pod_class: PodClass) -> None:
        pod_class.is_waiting = True
        self._waiting.add(pod_class)

    def activate(self, pod_class: PodClass) -> None:
        pod_class.is_waiting = False
        self._waiting.discard(pod_class)
        self._push(pod_class)

    def park(self, uid: str) -> None:
        """Let a pod wait for a change of its claims."""
        pod_class = self._class_of.get(uid)
        if pod_class is not None:
            self._wait(pod_class)

    # Changes that could help

    def nodes_changed(self) -> None:
        """A node is new, or takes more pods than before."""
        for pod_class in self._waiting.all():
            self.activate(pod_class)

    def room_freed(self, node: NodeInfo) -> None:
        """A pod left a node."""
        for pod_class in self._waiting.helped_by_room(node):
            self.activate(pod_class)

    def pod_assigned(self) -> None:
        """A pod is new on a node, and others may want to be near it."""
        for pod_class in self._waiting.helped_by_pod():
            self.activate(pod_class)

    def gang_changed(self, gang: tuple[str, str]) -> None:
        pod_class = self._classes.get(("gang", *gang))
        if pod_class is not None:
            self.activate(pod_class)

    def claim_changed(self, namespace: str, name: str) -> None:
        for pod_class in list(self._by_claim.get(f"{namespace}/{name}", ())):
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
        pod_class = self._classes[key] = PodClass(key, gang_of(pod), requests(pod))
        return pod_class

    def _add_claims(self, pod_class: PodClass, pod: Object) -> None:
        namespace = pod["metadata"].get("namespace", "")
        for name in self._claims_of(pod):
            claim = f"{namespace}/{name}"
            pod_class.claims.add(claim)
            self._by_claim.setdefault(claim, set()).add(pod_class)

    def _remove_class(self, pod_class: PodClass) -> None:
        del self._classes[pod_class.key]
        self._unreported.pop(pod_class, None)
        self._waiting.discard(pod_class)
        for claim in pod_class.claims:
            classes = self._by_claim[claim]
            classes.discard(pod_class)
            if not classes:
                del self._by_claim[claim]
        successor = self._waiting.first_of(pod_class.shape) if pod_class.shape else None
        if successor is not None:  # this gang was tried for all of its shape; if it fits now, the next one may
            self.activate(successor)

    def _shape(self, gang: PodClass, answer: Unschedulable) -> tuple[object, ...]:
        """What the answer to a gang depends on; empty if it is known for this gang only."""
        if not answer.reasons or messages.EXISTING_ANTI_AFFINITY in answer.reasons:
            return ()
        sizes = {(pod["metadata"].get("annotations") or {}).get(GANG_SIZE) for pod in gang.pods.values()}
        size = next(iter(sizes)) if len(sizes) == 1 else None
        members = sorted(_scheduling_fields(pod, self._claims_of(pod)) for pod in gang.pods.values())
        return (size or answer.message, *members)

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


def _is_alike(known: Object, pod: Object) -> bool:
    """Whether only the status of a pod has changed: an informer keeps an unchanged spec."""
    before, after = known["metadata"], pod["metadata"]
    return known["spec"] is pod["spec"] and all(before.get(name) == after.get(name) for name in _CLASS_METADATA)


def _smallest(pods: Iterable[Object]) -> dict[str, int]:
    """The smallest amounts that one of the pods requests."""
    smallest: dict[str, int] | None = None
    for pod in pods:
        amounts = requests(pod)
        if smallest is None:
            smallest = amounts
        else:
            smallest = {name: min(amount, amounts[name]) for name, amount in smallest.items() if name in amounts}
    return smallest or {}


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
