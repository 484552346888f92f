"""Where a plane listens: the address that its own machine uses, and the names in its certificate."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from torchyard.api.errors import YardError


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """`address` is what this machine's kubeconfig uses; `names` are all that clients may use."""

    address: str
    names: tuple[str, ...]


def resolve_listen_address(host: str) -> ListenAddress:
    """Resolve `--host`: an address, a host name, or every address (0.0.0.0, ::)."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        hint = "name an address of this machine with --host"
        raise YardError(f"cannot listen on {host}: {error.strerror or error}", hint=hint, code="BadOption") from error
    addresses = [_plain(str(info[4][0])) for info in infos]
    first = ipaddress.ip_address(addresses[0])
    if first.is_unspecified:
        return ListenAddress("127.0.0.1" if first.version == 4 else "::1", _own_addresses())
    return ListenAddress(addresses[0], tuple(dict.fromkeys((host, *addresses))))


def _own_addresses() -> tuple[str, ...]:
    import psutil  # imported only when every address is needed

    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [
        entry.address for interface in psutil.net_if_addrs().values() for entry in interface if entry.family in families
    ]
    return tuple(dict.fromkeys(map(_plain, addresses)))


def _plain(address: str) -> str:
    """The address without the interface of a link-local address."""
    return address.partition("%")[0]
