"""Nodes with their pods and resources, and the requests of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended

Amounts = dict[str, int]  # resource → thousandths; pods count as a resource too
PODS = "pods"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _milli(amounts: Mapping[str, Any]) -> Amounts:
    return {name: quantity.parse(str(text)).milli for name, text in amounts.items()}


def _container(container: Object) -> Amounts:
    """The requests of a container. A limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return {**_milli(resources.get("limits") or {}), **_milli(resources.get("requests") or {})}


def add_amounts(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}


def requests(pod: Object) -> Amounts:
    """The requests of a pod: the sum of its containers, or the peak of its initialization, whichever is larger.

    Sidecars count together with everything that starts after them (upstream's PodRequests).
    """
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = add_amounts(total, _container(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = add_amounts(sidecars, own)
            moment = sidecars
        else:
            moment = add_amounts(sidecars, own)
        peak = {name: max(peak.get(name, 0), moment.get(name, 0)) for name in {*peak, *moment}}
    total = add_amounts(total, sidecars)
    total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {*total, *peak}}
    total |= _container(spec)  # pod-level resources replace the sum
    total = add_amounts(total, _milli(spec.get("overhead") or {}))
    return {**{name: amount for name, amount in total.items() if amount}, PODS: 1000}


def host_ports(pod: Object) -> set[tuple[str, int, str]]:
    """Protocol, port and address of the machine; an empty address is every address."""
    return {
        (port.get("protocol") or "TCP", port["hostPort"], _host_ip(port))
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def _host_ip(port: Object) -> str:
    address = port.get("hostIP") or ""
    return "" if address == "0.0.0.0" else address  # noqa: S104


def host_ports_conflict(pod: Object, other: Object) -> bool:
    """Whether both pods want the same port of an address."""
    taken: dict[tuple[str, int], set[str]] = {}
    for protocol, number, address in host_ports(other):
        taken.setdefault((protocol, number), set()).add(address)
    return any(
        addresses and (not address or "" in addresses or address in addresses)
        for protocol, number, address in host_ports(pod)
        for addresses in (taken.get((protocol, number)),)
    )


def uid_of(pod: Object) -> str:
    """The uid of a pod; its name before it has one."""
    metadata = pod["metadata"]
    return str(metadata.get("uid") or metadata.get("name", ""))


def required_anti_affinity(pod: Object) -> list[Object]:
    """The terms by which a pod excludes others from its topology domain."""
    terms = ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(REQUIRED)
    return terms or []


@dataclass(slots=True)
class NodeInfo:
    """A node and its pods, bound or about to be."""

    node: Object
    pods: dict[str, Object] = field(default_factory=dict)  # by uid
    used: Amounts = field(default_factory=dict)
    exclusive: dict[str, Object] = field(default_factory=dict)  # the pods with required anti-affinity
    allocatable: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.allocatable = _milli((self.node.get("status") or {}).get("allocatable") or {})

    @classmethod
    def of(cls, node: Object, pods: Iterable[Object]) -> NodeInfo:
        view = cls(node)
        for pod in pods:
            if not has_ended(pod):
                view.add(pod)
        return view

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node["metadata"].get("labels") or {}

    def free(self) -> Amounts:
        return {name: amount - self.used.get(name, 0) for name, amount in self.allocatable.items()}

    def fits(self, amounts: Amounts) -> bool:
        """Whether so much is free."""
        allocatable, used = self.allocatable, self.used
        return all(amount <= allocatable.get(name, 0) - used.get(name, 0) for name, amount in amounts.items())

    def add(self, pod: Object) -> None:
        uid = uid_of(pod)
        self.pods[uid] = pod
        for name, amount in requests(pod).items():
            self.used[name] = self.used.get(name, 0) + amount
        if required_anti_affinity(pod):
            self.exclusive[uid] = pod

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        for name, amount in requests(pod).items():
            self.used[name] -= amount
        self.exclusive.pop(uid, None)

    def copy(self) -> NodeInfo:
        return NodeInfo(self.node, dict(self.pods), dict(self.used), dict(self.exclusive))
