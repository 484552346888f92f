"""IP addresses and networks."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
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


def _parse_address(text: str) -> _Address:
    """Parse an address; zones and IPv4-mapped IPv6 addresses are not allowed."""
    if "%" in text or re.match(r"(?i)::ffff:\d+\.", text):
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(text)
    return address


def _ip(text: str) -> Ip:
    try:
        return Ip(_parse_address(text))
    except ValueError:
        message = (
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): unable to parse IP'
        )
        raise EvaluationError(message) from None


def _is_ip(text: str) -> bool:
    try:
        _parse_address(text)
    except ValueError:
        return False
    return True


def _cidr(text: str) -> Cidr:
    try:
        address, slash, length = text.partition("/")
        if not slash or not length.isdigit():
            raise ValueError(text)
        _parse_address(address)
        return Cidr(ipaddress.ip_interface(text))
    except ValueError:
        message = "network address parse error during conversion from string"
        raise EvaluationError(f"{message}: {message}: netip.ParsePrefix(\"{text}\"): no '/'") from None


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


FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("ip", _ip, overload(STRING, result=_IP)),
    function("isIP", _is_ip, overload(STRING, result=BOOL)),
    function("ip.isCanonical", _is_canonical, overload(STRING, result=BOOL)),
    function("family", lambda ip: ip.address.version, member_overload(_IP, result=INT)),
    function("isUnspecified", lambda ip: ip.address.is_unspecified, member_overload(_IP, result=BOOL)),
    function("isLoopback", lambda ip: ip.address.is_loopback, member_overload(_IP, result=BOOL)),
    function(
        "isLinkLocalMulticast",
        lambda ip: ip.address.is_multicast and _is_link_local_multicast(ip.address),
        member_overload(_IP, result=BOOL),
    ),
    function("isLinkLocalUnicast", lambda ip: ip.address.is_link_local, member_overload(_IP, result=BOOL)),
    function("isGlobalUnicast", lambda ip: _is_global_unicast(ip.address), member_overload(_IP, result=BOOL)),
    function("cidr", _cidr, overload(STRING, result=_CIDR)),
    function("isCIDR", _is_cidr, overload(STRING, result=BOOL)),
    function(
        "containsIP",
        _contains_ip,
        member_overload(_CIDR, STRING, result=BOOL),
        member_overload(_CIDR, _IP, result=BOOL),
    ),
    function(
        "containsCIDR",
        _contains_cidr,
        member_overload(_CIDR, STRING, result=BOOL),
        member_overload(_CIDR, _CIDR, result=BOOL),
    ),
    function("ip", lambda cidr: Ip(cidr.interface.ip), member_overload(_CIDR, result=_IP)),
    function(
        "masked",
        lambda cidr: Cidr(ipaddress.ip_interface(str(cidr.interface.network))),
        member_overload(_CIDR, result=_CIDR),
    ),
    function("prefixLength", lambda cidr: cidr.interface.network.prefixlen, member_overload(_CIDR, result=INT)),
    function(
        "string",
        lambda value: str(value.address if isinstance(value, Ip) else value.interface),
        overload(_IP, result=STRING),
        overload(_CIDR, result=STRING),
    ),
)


def _is_link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address in ipaddress.IPv6Network("ff02::/16")


def _is_global_unicast(address: _Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"
