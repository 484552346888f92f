"""The rtnetlink requests that attach a pod to a network: bridge, veth, address, route.

They act on the caller's network namespace, need no `ip` program, and know neither pods nor services.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE, _DELROUTE, _ERROR = 16, 17, 20, 24, 25, 2
_REQUEST, _ACK, _EXCL, _CREATE = 1, 4, 0x200, 0x400
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 4, 5, 7
SCOPE_LINK, SCOPE_HOST = 253, 254
_IFF_UP = 1
_BRIDGE_ADDRESS = b"\x02yard0"  # locally administered; a bridge is the only one of its namespace
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_TYPE_UNICAST, _TYPE_LOCAL = 1, 2


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def _link_header(index: int = 0, *, up: bool = False) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, _IFF_UP if up else 0, _IFF_UP if up else 0)


def _request(kind: int, flags: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0) + body)
        reply = link.recv(65536)
    reply_kind = struct.unpack_from("=IH", reply)[1]
    number = -struct.unpack_from("=i", reply, 16)[0] if reply_kind == _ERROR else 0
    if number:
        raise OSError(number, f"netlink request {kind}: {os.strerror(number)}")


def add_bridge(name: str) -> None:
    info = _attribute(_INFO_KIND, b"bridge")
    body = _link_header() + _attribute(_IFLA_IFNAME, name.encode() + b"\0") + _attribute(_IFLA_LINKINFO, info)
    # A bridge without an address of its own takes the lowest one of its ports. Pods that have the old one cached lose
    # their gateway for up to twenty seconds whenever a pod with a lower one is added or removed.
    body += _attribute(_IFLA_ADDRESS, _BRIDGE_ADDRESS)
    _request(_NEWLINK, _CREATE | _EXCL, body)


def add_veth(name: str, peer: str, *, peer_namespace: int, bridge: str = "") -> None:
    """A veth pair: one end here, in the bridge and up, the other in the network namespace of the descriptor.

    Without a bridge the end is down: it has no address yet.
    """
    peer_info = _link_header() + _attribute(_IFLA_IFNAME, peer.encode() + b"\0")
    peer_info += _attribute(_IFLA_NET_NS_FD, struct.pack("=I", peer_namespace))
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer_info))
    body = _link_header(up=bool(bridge)) + _attribute(_IFLA_IFNAME, name.encode() + b"\0")
    if bridge:
        body += _attribute(_IFLA_MASTER, struct.pack("=I", socket.if_nametoindex(bridge)))
    _request(_NEWLINK, _CREATE | _EXCL, body + _attribute(_IFLA_LINKINFO, info))


def remove_link(name: str) -> None:
    _request(_DELLINK, 0, _link_header(socket.if_nametoindex(name)))


def link_up(name: str) -> None:
    _request(_NEWLINK, 0, _link_header(socket.if_nametoindex(name), up=True))


def add_address(name: str, address: str, prefix: int, *, scope: int = 0) -> None:
    raw = socket.inet_aton(address)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, scope, socket.if_nametoindex(name))
    try:
        _request(_NEWADDR, _CREATE | _EXCL, body + _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw))
    except FileExistsError:
        return


def _route(
    kind: int, table: int, *, scope: int, destination: bytes, prefix: int, attributes: bytes, remove: bool = False
) -> None:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, table, 3, scope, kind, 0)
    if prefix:
        body += _attribute(_RTA_DST, destination)
    if remove:
        _request(_DELROUTE, 0, body + attributes)
    else:
        _request(_NEWROUTE, _CREATE | _EXCL, body + attributes)


def add_default_route(gateway: str) -> None:
    via = _attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
    with contextlib.suppress(FileExistsError):
        _route(_TYPE_UNICAST, _TABLE_MAIN, scope=0, destination=b"", prefix=0, attributes=via)


def add_route(network: str, prefix: int, *, gateway: str, source: str) -> None:
    """The way to a range; connections that choose no address themselves come from `source`."""
    via = _attribute(_RTA_GATEWAY, socket.inet_aton(gateway)) + _attribute(_RTA_PREFSRC, socket.inet_aton(source))
    _route(_TYPE_UNICAST, _TABLE_MAIN, scope=0, destination=socket.inet_aton(network), prefix=prefix, attributes=via)


def add_local_route(network: str, prefix: int) -> None:
    """Make every address of the range local to this namespace, so that a program can listen on any of them."""
    out = _attribute(_RTA_OIF, struct.pack("=I", socket.if_nametoindex("lo")))
    raw = socket.inet_aton(network)
    with contextlib.suppress(FileExistsError):
        _route(_TYPE_LOCAL, _TABLE_LOCAL, scope=SCOPE_HOST, destination=raw, prefix=prefix, attributes=out)


def remove_local_route(network: str, prefix: int) -> None:
    raw = socket.inet_aton(network)
    _route(_TYPE_LOCAL, _TABLE_LOCAL, scope=SCOPE_HOST, destination=raw, prefix=prefix, attributes=b"", remove=True)
