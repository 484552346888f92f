"""Nodes with their pods and resources, and the requests of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.api import quantity
from torchyard.api.objects import Object

Amounts = dict[str, int]  # resource → thousandths; pods count as a resource too
PODS = "pods"


def _milli(amounts: Mapping[str, Any]) -> Amounts:
    return {name: quantity.parse(str(text)).milli for name, text in amounts.items()}


def _container(container: Object) -> Amounts:
    """The requests of a container. A limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return {**_milli(resources.get("limits") or {}), **_milli(resources.get("requests") or {})}


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}


def requests(pod: Object) -> Amounts:
    """The requests of a pod: the sum of its containers, or the peak of its initialization, whichever is larger.

    Sidecars count together with everything that starts after them (upstream's PodRequests).
    """
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = add(total, _container(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, own)
            moment = sidecars
        else:
            moment = add(sidecars, own)
        peak = {name: max(peak.get(name, 0), moment.get(name, 0)) for name in {*peak, *moment}}
    total = add(total, sidecars)
    total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {*total, *peak}}
    total = add(total, _milli(spec.get("overhead") or {}))
    return {**{name: amount for name, amount in total.items() if amount}, PODS: 1000}


def host_ports(pod: Object) -> set[tuple[str, int]]:
    return {
        (port.get("protocol") or "TCP", port["hostPort"])
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


@dataclass(slots=True)
class NodeInfo:
    """A node and its pods; `assume` adds a pod that is about to be bound."""

    node: Object
    pods: list[Object] = field(default_factory=list)
    used: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, node: Object, pods: Iterable[Object]) -> NodeInfo:
        view = cls(node)
        for pod in pods:
            if not is_finished(pod):
                view.assume(pod)
        return view

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node["metadata"].get("labels") or {}

    @property
    def allocatable(self) -> Amounts:
        return _milli((self.node.get("status") or {}).get("allocatable") or {})

    def free(self) -> Amounts:
        return {name: amount - self.used.get(name, 0) for name, amount in self.allocatable.items()}

    def assume(self, pod: Object) -> None:
        self.pods.append(pod)
        self.used = add(self.used, requests(pod))

    def copy(self) -> NodeInfo:
        return NodeInfo(self.node, list(self.pods), dict(self.used))
