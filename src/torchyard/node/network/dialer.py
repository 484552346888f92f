"""Connects to addresses of the cluster: pods' in their network, all others in the network of the machine.

Pods with `hostNetwork`, and endpoints that users write themselves, have addresses of the machine or beyond it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.shim.client import ClusterNetwork, ShimRequestError

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import Protocol


class ClusterDialer:
    """`network` is None where pods are in the network of the machine."""

    def __init__(self, network: ClusterNetwork | None, settings: NetworkSettings) -> None:
        self._network = network
        self._ranges = (ipaddress.ip_network(settings.pods), ipaddress.ip_network(settings.services))

    @classmethod
    def of_node(cls, root: Path, settings: NetworkSettings, *, has_network: bool) -> ClusterDialer:
        return cls(ClusterNetwork(root) if has_network else None, settings)

    async def connect(self, host: str, port: int, protocol: Protocol = "tcp") -> socket.socket:
        """A connected socket that does not block. Raises OSError."""
        if self._network is None or not self._is_in_cluster(host):
            return await _connect_from_machine(host, port, protocol)
        try:
            return await self._network.connect(host, port, protocol)
        except ShimRequestError as error:
            raise OSError(error.errno, error.message) from None
        except YardError as error:
            raise OSError(f"the pod network is not available: {error.message}") from None

    def _is_in_cluster(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._ranges)


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
