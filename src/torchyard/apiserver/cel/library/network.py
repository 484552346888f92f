"""IP addresses and networks."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import Function, call, function, method
from torchyard.apiserver.cel.types import BOOL, INT, STRING, opaque

_IP = opaque("net.IP")
_CIDR = opaque("net.CIDR")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class Ip:
    cel_name: ClassVar[str] = "net.IP"
    address: _Address


@dataclass(frozen=True, slots=True)
class Cidr:
    cel_name: ClassVar[str] = "net.CIDR"
    interface: _Interface


def _read(text: str) -> _Address:
    """An address; none with a zone, and no IPv4 address in IPv6's clothes."""
    if "%" in text or re.match(r"(?i)::ffff:\d+\.", text):
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(text)
    return address


def _ip(text: str) -> Ip:
    try:
        return Ip(_read(text))
    except ValueError:
        said = f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): unable to parse IP'
        raise EvaluationError(said) from None


def _is_ip(text: str) -> bool:
    try:
        _read(text)
    except ValueError:
        return False
    return True


def _cidr(text: str) -> Cidr:
    try:
        address, slash, length = text.partition("/")
        if not slash or not length.isdigit():
            raise ValueError(text)
        _read(address)
        return Cidr(ipaddress.ip_interface(text))
    except ValueError:
        said = "network address parse error during conversion from string"
        raise EvaluationError(f"{said}: {said}: netip.ParsePrefix(\"{text}\"): no '/'") from None


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except EvaluationError:
        return False
    return True


def _contains_ip(cidr: Cidr, ip: Any) -> bool:
    address = _ip(ip).address if isinstance(ip, str) else ip.address
    return address in cidr.interface.network


def _contains_cidr(cidr: Cidr, other: Any) -> bool:
    inner = (_cidr(other) if isinstance(other, str) else other).interface.network
    outer = cidr.interface.network
    return inner.version == outer.version and outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _is_canonical(text: str) -> bool:
    return str(_ip(text).address) == text


FUNCTIONS: tuple[Function, ...] = (
    function("ip", _ip, call(STRING, gives=_IP)),
    function("isIP", _is_ip, call(STRING, gives=BOOL)),
    function("ip.isCanonical", _is_canonical, call(STRING, gives=BOOL)),
    function("family", lambda ip: ip.address.version, method(_IP, gives=INT)),
    function("isUnspecified", lambda ip: ip.address.is_unspecified, method(_IP, gives=BOOL)),
    function("isLoopback", lambda ip: ip.address.is_loopback, method(_IP, gives=BOOL)),
    function(
        "isLinkLocalMulticast",
        lambda ip: ip.address.is_multicast and _is_link_local_multicast(ip.address),
        method(_IP, gives=BOOL),
    ),
    function("isLinkLocalUnicast", lambda ip: ip.address.is_link_local, method(_IP, gives=BOOL)),
    function("isGlobalUnicast", lambda ip: _is_global_unicast(ip.address), method(_IP, gives=BOOL)),
    function("cidr", _cidr, call(STRING, gives=_CIDR)),
    function("isCIDR", _is_cidr, call(STRING, gives=BOOL)),
    function("containsIP", _contains_ip, method(_CIDR, STRING, gives=BOOL), method(_CIDR, _IP, gives=BOOL)),
    function("containsCIDR", _contains_cidr, method(_CIDR, STRING, gives=BOOL), method(_CIDR, _CIDR, gives=BOOL)),
    function("ip", lambda cidr: Ip(cidr.interface.ip), method(_CIDR, gives=_IP)),
    function(
        "masked",
        lambda cidr: Cidr(ipaddress.ip_interface(str(cidr.interface.network))),
        method(_CIDR, gives=_CIDR),
    ),
    function("prefixLength", lambda cidr: cidr.interface.network.prefixlen, method(_CIDR, gives=INT)),
    function(
        "string",
        lambda value: str(value.address if isinstance(value, Ip) else value.interface),
        call(_IP, gives=STRING),
        call(_CIDR, gives=STRING),
    ),
)


def _is_link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address in ipaddress.IPv6Network("ff02::/16")


def _is_global_unicast(address: _Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"
