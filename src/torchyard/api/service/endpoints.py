"""What is valid in Endpoints and EndpointSlices."""

from __future__ import annotations

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

_MAX_ENDPOINTS = 1000
_MAX_ADDRESSES = 100
_MAX_PORTS = 20000
_MAX_ZONES = 8
_TYPES = ("FQDN", "IPv4", "IPv6")


def validate_endpoints(endpoints: Object) -> list[Fault]:
    found: list[Fault] = []
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        at, ports = f"subsets[{index}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(faults.required(at, "must specify `addresses` or `notReadyAddresses`"))
        for kind in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(kind) or ()):
                _check_address(address, f"{at}.{kind}[{number}]", found)
        for number, port in enumerate(ports):
            _check_port(port, f"{at}.ports[{number}]", found, name_needed=len(ports) > 1)
    return found


def _check_address(address: Object, at: str, found: list[Fault]) -> None:
    text = address.get("ip") or ""
    checks.ip(text, f"{at}.ip", found)
    if host := address.get("hostname"):
        checks.told(names.label_problems(host), f"{at}.hostname", host, found)
    if (node := address.get("nodeName")) is not None:
        checks.told(names.subdomain_problems(node), f"{at}.nodeName", node, found)
    checks.ordinary_ip(text, f"{at}.ip", found)


def _check_port(port: Object, at: str, found: list[Fault], *, name_needed: bool) -> None:
    name = port.get("name") or ""
    if name:
        checks.told(names.label_problems(name), f"{at}.name", name, found)
    elif name_needed:
        found.append(faults.required(f"{at}.name"))
    checks.port_number(port.get("port") or 0, f"{at}.port", found)
    checks.one_of(port.get("protocol"), checks.PROTOCOLS, f"{at}.protocol", found)
    if (protocol := port.get("appProtocol")) is not None:
        checks.told(names.qualified_name_problems(protocol), f"{at}.appProtocol", protocol, found)


def validate_endpoint_slice(slice_: Object) -> list[Fault]:
    found: list[Fault] = []
    kind = slice_.get("addressType") or ""
    checks.one_of(kind, _TYPES, "addressType", found)
    _check_slice_ports(slice_.get("ports") or [], found)
    endpoints = slice_.get("endpoints") or []
    if len(endpoints) > _MAX_ENDPOINTS:
        found.append(faults.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
        return found
    for index, endpoint in enumerate(endpoints):
        _check_endpoint(endpoint, kind, f"endpoints[{index}]", found)
    return found


def _check_slice_ports(ports: list[Object], found: list[Fault]) -> None:
    if len(ports) > _MAX_PORTS:
        found.append(faults.too_many("ports", len(ports), _MAX_PORTS))
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name") or ""
        if name:
            checks.told(names.label_problems(name), f"ports[{index}].name", name, found)
        if name in seen:
            found.append(faults.duplicate(f"ports[{index}].name", name))
        seen.add(name)
        checks.one_of(port.get("protocol"), checks.PROTOCOLS, f"ports[{index}].protocol", found)
        if (protocol := port.get("appProtocol")) is not None:
            checks.told(names.qualified_name_problems(protocol), f"ports[{index}].appProtocol", protocol, found)


def _check_endpoint(endpoint: Object, kind: str, at: str, found: list[Fault]) -> None:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        found.append(faults.required(f"{at}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MAX_ADDRESSES:
        found.append(faults.too_many(f"{at}.addresses", len(addresses), _MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        field = f"{at}.addresses[{index}]"
        if kind not in _TYPES:
            break
        if kind == "FQDN":
            checks.told(names.subdomain_problems(address), field, address, found)
            continue
        parsed = checks.parse_ip(address)
        if parsed is None:
            checks.ip(address, field, found)
            continue
        if parsed.version != int(kind[-1]):
            found.append(faults.invalid(f"{at}.addresses", address, f"must be an {kind} address"))
        checks.ordinary_ip(address, field, found)
    if (node := endpoint.get("nodeName")) is not None:
        checks.told(names.subdomain_problems(node), f"{at}.nodeName", node, found)
    if (host := endpoint.get("hostname")) is not None:
        checks.told(names.label_problems(host), f"{at}.hostname", host, found)
    zones = (endpoint.get("hints") or {}).get("forZones") or []
    if len(zones) > _MAX_ZONES:
        found.append(faults.too_many(f"{at}.hints.forZones", len(zones), _MAX_ZONES))
        return
    seen: set[str] = set()
    for index, zone in enumerate(zones):
        field, name = f"{at}.hints.forZones[{index}].name", zone.get("name") or ""
        if name in seen:
            found.append(faults.duplicate(field, name))
        seen.add(name)
        checks.told(names.label_value_problems(name), field, name, found)


def validate_endpoint_slice_update(new: Object, old: Object) -> list[Fault]:
    found = validate_endpoint_slice(new)
    checks.immutable(new.get("addressType"), old.get("addressType"), "addressType", found)
    return found
