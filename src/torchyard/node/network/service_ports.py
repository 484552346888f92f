"""What the node listens on for Services and pods, and the endpoints behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from torchyard.api import checks
from torchyard.api.objects import Object

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import Protocol

_PROTOCOLS: dict[str, Protocol] = {"TCP": "tcp", "UDP": "udp"}  # SCTP is not supported
_DEFAULT_AFFINITY_SECONDS = 10800


class ListenKey(NamedTuple):
    protocol: Protocol
    address: str
    port: int
    on_machine: bool = False  # otherwise in the pods' network


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of one address, and the endpoints behind it. `owner` and `name` identify the port of the Service."""

    key: ListenKey
    endpoints: tuple[tuple[str, int], ...]
    owner: str = ""
    name: str = ""
    affinity_seconds: int = field(default=0)  # how long a client keeps its endpoint; 0: every connection has its turn

    @property
    def affinity_key(self) -> tuple[str, str, str]:
        return self.owner, self.name, self.key.protocol


def service_ports(
    service: Object, slices: Iterable[Object], *, node_addresses: Iterable[str] = (), node: str = ""
) -> list[ServicePort]:
    """Every TCP and UDP port of a Service that has an address: its cluster IP, and its node ports.

    `slices` are the Service's own EndpointSlices. Pods reach node ports at `node`, the address of the node.
    """
    spec = service["spec"]
    address = spec.get("clusterIP")
    if not address or address == "None" or spec.get("type") == "ExternalName":
        return []
    own_slices, seconds = list(slices), _affinity_seconds(spec)
    owner = f"{service['metadata'].get('namespace', '')}/{service['metadata'].get('name', '')}"
    ports = []
    for port in spec.get("ports") or ():
        protocol = _PROTOCOLS.get(port.get("protocol") or "TCP")
        if protocol is None:
            continue
        name = port.get("name") or ""
        endpoints = endpoints_of(own_slices, name)
        keys = [ListenKey(protocol, address, port["port"])]
        if port.get("nodePort"):
            keys += [ListenKey(protocol, each, port["nodePort"], on_machine=True) for each in node_addresses]
            keys += [ListenKey(protocol, node, port["nodePort"])] if node else []
        ports += [ServicePort(key, endpoints, owner, name, seconds) for key in keys]
    return ports


def host_ports(pod: Object, *, node_addresses: Iterable[str], node: str = "") -> list[ServicePort]:
    """The ports of the machine that lead to a pod with a network of its own; `node` as for `service_ports`."""
    spec, metadata = pod["spec"], pod["metadata"]
    status = pod.get("status") or {}
    address = status.get("podIP")
    is_over = status.get("phase") in ("Succeeded", "Failed")
    if spec.get("hostNetwork") or not address or is_over:
        return []
    owner, addresses = f"pod:{metadata['namespace']}/{metadata['name']}", list(node_addresses)
    ports = []
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        for port in container.get("ports") or ():
            protocol = _PROTOCOLS.get(port.get("protocol") or "TCP")
            if not port.get("hostPort") or protocol is None:
                continue
            host = port.get("hostIP") or ""
            chosen = addresses if _is_any_address(host) else [host]
            keys = [ListenKey(protocol, each, port["hostPort"], on_machine=True) for each in chosen]
            if node and (_is_any_address(host) or host == node):
                keys.append(ListenKey(protocol, node, port["hostPort"]))
            ports += [ServicePort(key, ((address, port["containerPort"]),), owner) for key in keys]
    return ports


def _is_any_address(host: str) -> bool:
    """Whether a port is for all addresses of the node. Text that is no address is left as it is: listening fails."""
    address = checks.parse_ip(host)
    return not host or (address is not None and checks.unmapped(address).is_unspecified)


def _affinity_seconds(spec: Object) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(config.get("timeoutSeconds") or _DEFAULT_AFFINITY_SECONDS)


def endpoints_of(slices: list[Object], port_name: str) -> tuple[tuple[str, int], ...]:
    """The ready endpoints; while there are none, those that still serve though they are terminating."""
    ready, terminating = [], []
    for endpoint_slice in slices:
        if endpoint_slice.get("addressType") == "FQDN":  # as kube-proxy, which does not resolve names
            continue
        numbers = [
            port["port"]
            for port in endpoint_slice.get("ports") or ()
            if (port.get("name") or "") == port_name and port.get("port")
        ]
        for endpoint in endpoint_slice.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            addresses = [(address, number) for address in (endpoint.get("addresses") or ())[:1] for number in numbers]
            if conditions.get("ready", True) is not False:
                ready += addresses
            elif conditions.get("serving") and conditions.get("terminating"):
                terminating += addresses
    return tuple(dict.fromkeys(ready or terminating))
