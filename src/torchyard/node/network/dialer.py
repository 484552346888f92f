"""Connects to addresses of the cluster: pods' in their network, all others in the network of the machine.

Pods with `hostNetwork`, and endpoints that users write themselves, have addresses of the machine or beyond it. What
listens on the loopback address, and link-local services such as a cloud's metadata, trust those who reach them: they
are not for users of the cluster. Only the API server's own address may be one of them, and the node's, on a machine
that has no other.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api import checks
from torchyard.api.errors import YardError
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.shim.client import ClusterNetwork, ShimRequestError

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import Protocol

    _Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClusterDialer:
    """`network` is None where pods are in the network of the machine.

    `resolves`: whether a host may be a name, as that of a webhook's Service of type ExternalName.
    """

    def __init__(
        self,
        network: ClusterNetwork | None,
        settings: NetworkSettings,
        *,
        host_ip: str = "",
        api: tuple[str, int] | None = None,
        resolves: bool = False,
    ) -> None:
        self._network, self._host_ip, self._api, self._resolves = network, host_ip, api, resolves
        self._ranges = (ipaddress.ip_network(settings.pods), ipaddress.ip_network(settings.services))

    @classmethod
    def of_node(
        cls,
        root: Path,
        settings: NetworkSettings,
        *,
        has_network: bool,
        host_ip: str = "",
        api: tuple[str, int] | None = None,
    ) -> ClusterDialer:
        network = ClusterNetwork(root) if has_network else None
        return cls(network, settings, host_ip=host_ip, api=api, resolves=True)

    async def connect(self, host: str, port: int, protocol: Protocol = "tcp") -> socket.socket:
        """A connected socket that does not block. Raises OSError."""
        if (host, port) == self._api:
            return await _connect_from_machine(host, port, protocol)
        address = await self._address(host, port)
        if self._network is None or not any(address in network for network in self._ranges):
            self._check(address)
            return await _connect_from_machine(str(address), port, protocol)
        try:
            return await self._network.connect(str(address), port, protocol)
        except ShimRequestError as error:
            raise OSError(error.errno, error.message) from None
        except YardError as error:
            raise OSError(f"the pod network is not available: {error.message}") from None

    async def _address(self, host: str, port: int) -> _Address:
        try:
            return checks.unmapped(ipaddress.ip_address(host))
        except ValueError:
            if not self._resolves:
                raise OSError(errno.EADDRNOTAVAIL, f"{host!r} is not an IP address") from None
        try:
            results = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:  # such as a label of more than 63 characters, which no resolver is asked for
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return checks.unmapped(ipaddress.ip_address(results[0][4][0]))

    def _check(self, address: _Address) -> None:
        is_special = address.is_loopback or address.is_link_local or address.is_unspecified
        if is_special and str(address) != self._host_ip:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{address} is not for users of the cluster")


async def _connect_from_machine(host: str, port: int, protocol: Protocol) -> socket.socket:
    loop = asyncio.get_running_loop()
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    family, _, _, _, address = (await loop.getaddrinfo(host, port, type=kind))[0]
    connection = socket.socket(family, kind)
    connection.setblocking(False)
    try:
        await loop.sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection
