"""Validation of Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_MAX_ENDPOINTS = 1000
_MAX_ADDRESSES = 100
_MAX_PORTS = 20000
_MAX_HINTS = 8
_TYPES = ("FQDN", "IPv4", "IPv6")


def validate_endpoints(endpoints: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        at, ports = f"subsets[{index}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errs.append(field_errors.required(at, "must specify `addresses` or `notReadyAddresses`"))
        for kind in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(kind) or ()):
                _check_address(address, f"{at}.{kind}[{number}]", errs)
        for number, port in enumerate(ports):
            _check_port(port, f"{at}.ports[{number}]", errs, name_needed=len(ports) > 1)
    return errs


def _check_address(address: Object, at: str, errs: list[FieldError]) -> None:
    text = address.get("ip") or ""
    checks.ip(text, f"{at}.ip", errs)
    if host := address.get("hostname"):
        checks.report_problems(names.label_problems(host), f"{at}.hostname", host, errs)
    if (node := address.get("nodeName")) is not None:
        checks.report_problems(names.subdomain_problems(node), f"{at}.nodeName", node, errs)
    checks.non_special_ip(text, f"{at}.ip", errs)


def _check_port(port: Object, at: str, errs: list[FieldError], *, name_needed: bool) -> None:
    name = port.get("name") or ""
    if name:
        checks.report_problems(names.label_problems(name), f"{at}.name", name, errs)
    elif name_needed:
        errs.append(field_errors.required(f"{at}.name"))
    checks.port_number(port.get("port") or 0, f"{at}.port", errs)
    checks.required_enum(port.get("protocol"), checks.PROTOCOLS, f"{at}.protocol", errs)
    if (protocol := port.get("appProtocol")) is not None:
        checks.report_problems(names.qualified_name_problems(protocol), f"{at}.appProtocol", protocol, errs)


def validate_endpoint_slice(slice_: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    kind = slice_.get("addressType") or ""
    checks.required_enum(kind, _TYPES, "addressType", errs)
    _check_slice_ports(slice_.get("ports") or [], errs)
    endpoints = slice_.get("endpoints") or []
    if len(endpoints) > _MAX_ENDPOINTS:
        errs.append(field_errors.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
        return errs
    for index, endpoint in enumerate(endpoints):
        _check_endpoint(endpoint, kind, f"endpoints[{index}]", errs)
    return errs


def _check_slice_ports(ports: list[Object], errs: list[FieldError]) -> None:
    if len(ports) > _MAX_PORTS:
        errs.append(field_errors.too_many("ports", len(ports), _MAX_PORTS))
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name") or ""
        if name:
            checks.report_problems(names.label_problems(name), f"ports[{index}].name", name, errs)
        if name in seen:
            errs.append(field_errors.duplicate(f"ports[{index}].name", name))
        seen.add(name)
        checks.optional_enum(port.get("protocol"), checks.PROTOCOLS, f"ports[{index}].protocol", errs)
        if (protocol := port.get("appProtocol")) is not None:
            checks.report_problems(
                names.qualified_name_problems(protocol), f"ports[{index}].appProtocol", protocol, errs
            )


def _check_endpoint(endpoint: Object, kind: str, at: str, errs: list[FieldError]) -> None:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        errs.append(field_errors.required(f"{at}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MAX_ADDRESSES:
        errs.append(field_errors.too_many(f"{at}.addresses", len(addresses), _MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        field = f"{at}.addresses[{index}]"
        if kind not in _TYPES:
            break
        if kind == "FQDN":
            checks.report_problems(names.subdomain_problems(address), field, address, errs)
            continue
        parsed = checks.parse_ip(address)
        if parsed is None:
            checks.ip(address, field, errs)
            continue
        if parsed.version != int(kind[-1]):
            errs.append(field_errors.invalid(f"{at}.addresses", address, f"must be an {kind} address"))
        checks.non_special_ip(address, field, errs)
    if (node := endpoint.get("nodeName")) is not None:
        checks.report_problems(names.subdomain_problems(node), f"{at}.nodeName", node, errs)
    if (host := endpoint.get("hostname")) is not None:
        checks.report_problems(names.label_problems(host), f"{at}.hostname", host, errs)
    hints: Object = endpoint.get("hints") or {}
    _check_hints(hints.get("forZones") or [], names.label_value_problems, f"{at}.hints.forZones", errs)
    _check_hints(hints.get("forNodes") or [], names.subdomain_problems, f"{at}.hints.forNodes", errs)


def _check_hints(hints: list[Object], problems: Callable[[str], list[str]], at: str, errs: list[FieldError]) -> None:
    if len(hints) > _MAX_HINTS:
        errs.append(field_errors.too_many(at, len(hints), _MAX_HINTS))
        return
    seen: set[str] = set()
    for index, hint in enumerate(hints):
        field, name = f"{at}[{index}].name", hint.get("name") or ""
        if name in seen:
            errs.append(field_errors.duplicate(field, name))
        seen.add(name)
        checks.report_problems(problems(name), field, name, errs)


def validate_endpoint_slice_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_endpoint_slice(new)
    checks.immutable(new.get("addressType"), old.get("addressType"), "addressType", errs)
    return errs
