"""From the name in a proxy's path, `[scheme:]name[:port]`, to the address of a pod. The messages are upstream's."""

from __future__ import annotations

import ipaddress
import random
from typing import NamedTuple

from torchyard.api import checks, errors
from torchyard.api.objects import Object
from torchyard.apiserver.service_network.resolver import ServiceLister

_SCHEMES = ("", "http", "https")


class ProxyTarget(NamedTuple):
    scheme: str
    host: str
    port: str  # empty: the scheme's own

    @property
    def netloc(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


class _Name(NamedTuple):
    scheme: str
    name: str
    port: str


def _is_number(port: str) -> bool:
    """Whether a port is a number that can be looked up: `int` fails for thousands of digits."""
    return port.isascii() and port.isdigit() and len(port) < 10


def pod_target(lister: ServiceLister, namespace: str, identifier: str) -> ProxyTarget:
    """The pod's own address, at the named port, or the first port of its containers."""
    parsed = _split(identifier)
    if parsed is None:
        raise errors.bad_request(f'invalid pod request "{identifier}"')
    pod = lister.get("", "pods", namespace, parsed.name)
    if pod is None:
        raise errors.not_found("pods", "", parsed.name)
    port = parsed.port
    if not port:
        ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
        port = str(next((each["containerPort"] for each in ports), ""))
    address = (pod.get("status") or {}).get("podIP") or ""
    if not _is_global_unicast(address):
        raise errors.bad_request("address not allowed")
    if port and not (_is_number(port) and int(port) < 65536):
        raise errors.unavailable(f"error trying to reach service: dial tcp: lookup tcp/{port}: unknown port")
    return ProxyTarget(parsed.scheme or "http", address, port)


def service_target(lister: ServiceLister, namespace: str, identifier: str) -> ProxyTarget:
    """A ready pod of the Service, chosen at random."""
    parsed = _split(identifier)
    if parsed is None:
        raise errors.bad_request(f'invalid service request "{identifier}"')
    port = parsed.port
    if _is_number(port):
        service = lister.get("", "services", namespace, parsed.name)
        if service is None:
            raise errors.not_found("services", "", parsed.name)
        numbered = [each for each in service["spec"].get("ports") or () if each["port"] == int(port)]
        if not numbered:
            raise errors.unavailable(f'no service port {int(port)} found for service "{parsed.name}"')
        port = numbered[0].get("name") or ""
    endpoints = lister.get("", "endpoints", namespace, parsed.name)
    if endpoints is None:
        raise errors.not_found("services", "", parsed.name)
    if not endpoints.get("subsets"):
        raise errors.unavailable(f'no endpoints available for service "{parsed.name}"')
    candidates = [
        ProxyTarget(parsed.scheme or "http", address["ip"], str(subset_port["port"]))
        for subset in endpoints["subsets"]
        for subset_port in subset.get("ports") or ()
        if (subset_port.get("name") or "") == port
        for address in subset.get("addresses") or ()
        if _is_pod(lister, namespace, address)
    ]
    if not candidates:
        raise errors.unavailable(f'no endpoints available for service "{identifier}"')
    return random.choice(candidates)


def _split(identifier: str) -> _Name | None:
    parts = identifier.split(":")
    scheme, name, port = {1: ("", *parts, ""), 2: ("", *parts), 3: tuple(parts)}.get(len(parts), ("-", "", ""))
    return _Name(scheme, name, port) if scheme in _SCHEMES and name else None


def _is_pod(lister: ServiceLister, namespace: str, address: Object) -> bool:
    """Whether an address is that of the pod it refers to: only pods are proxied to, whatever Endpoints say."""
    target = address.get("targetRef") or {}
    if target.get("kind") != "Pod":
        return False
    pod = lister.get("", "pods", target.get("namespace") or namespace, target.get("name") or "")
    addresses = [each.get("ip") for each in ((pod or {}).get("status") or {}).get("podIPs") or ()]
    return address["ip"] in addresses


def _is_global_unicast(text: str) -> bool:
    try:
        address = checks.unmapped(ipaddress.ip_address(text))
    except ValueError:
        return False
    return not (address.is_loopback or address.is_multicast or address.is_link_local or address.is_unspecified)
