"""Services with an address: connections to it are forwarded to one of the service's pods.

A userspace proxy on sockets in the cluster's network. Headless services, which training uses, do not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.node.network.connection_limit import ConnectionLimit, accept
from torchyard.node.network.udp_proxy import UdpServicePort
from torchyard.node.shim.client import ClusterNetwork

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import Protocol

    Key = tuple[Protocol, str, int]  # protocol, address, port

log = logging.getLogger(__name__)

_PROTOCOLS: dict[str, Protocol] = {"TCP": "tcp", "UDP": "udp"}  # SCTP is not supported
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of one service address, and the endpoints behind it."""

    protocol: Protocol
    address: str
    port: int
    endpoints: tuple[tuple[str, int], ...]

    @property
    def key(self) -> Key:
        return self.protocol, self.address, self.port


def service_ports(service: Object, slices: Iterable[Object]) -> list[ServicePort]:
    """Every TCP and UDP port of a service that has an address. `slices` are the service's own EndpointSlices."""
    spec = service["spec"]
    address = spec.get("clusterIP")
    if not address or address == "None":
        return []
    own_slices = list(slices)
    ports = []
    for port in spec.get("ports") or ():
        protocol = _PROTOCOLS.get(port.get("protocol") or "TCP")
        if protocol is None:
            continue
        name = port.get("name") or ""
        endpoints = tuple(endpoint for each in own_slices for endpoint in _ready_endpoints(each, name))
        ports.append(ServicePort(protocol, address, port["port"], endpoints))
    return ports


def _ready_endpoints(endpoint_slice: Object, port_name: str) -> list[tuple[str, int]]:
    numbers = [
        port["port"]
        for port in endpoint_slice.get("ports") or ()
        if (port.get("name") or "") == port_name and port.get("port")
    ]
    return [
        (address, number)
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready", True) is not False
        for address in endpoint.get("addresses") or ()
        for number in numbers
    ]


class ServiceProxy:
    """Keeps one listening socket per service port.

    `external` maps service addresses to addresses of the machine itself, such as the API server's.
    """

    def __init__(self, network: ClusterNetwork, *, external: dict[str, tuple[str, int]] | None = None) -> None:
        self._network = network
        self._external = external or {}
        self._ports: dict[Key, ServicePort] = {}
        self._keys_of: dict[str, set[Key]] = {}  # by service
        self._service_of: dict[Key, str] = {}
        self._round_robin = itertools.count()
        self._listeners: dict[Key, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._limit = ConnectionLimit()

    async def update(self, service: str, ports: Iterable[ServicePort]) -> bool:
        """Serve these ports of a service, and no other ports of it; returns whether all of them are served."""
        current = {port.key: port for port in ports}
        before = self._keys_of.pop(service, set())
        if current:
            self._keys_of[service] = set(current)
        for key in current:
            self._service_of[key] = service
        for key in before - current.keys():
            if self._service_of.get(key) == service:  # otherwise another service has the address now
                await self._stop_listening(key)
        self._ports.update(current)
        for key in [key for key in current if key not in self._listeners]:
            try:
                server = await self._network.listen(*key)
            except YardError as error:
                log.warning("cannot listen on service port: protocol=%s address=%s port=%s error=%r", *key, str(error))
                continue
            serve = self._serve_udp if key[0] == "udp" else self._serve_tcp
            self._listeners[key] = asyncio.create_task(serve(key, server))
        return current.keys() <= self._listeners.keys()

    async def _stop_listening(self, key: Key) -> None:
        self._service_of.pop(key, None)
        self._ports.pop(key, None)
        listener = self._listeners.pop(key, None)
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(YardError):
                await self._network.close(*key)

    async def close(self) -> None:
        for task in [*self._listeners.values(), *self._connections]:
            task.cancel()
        await asyncio.gather(*self._listeners.values(), *self._connections, return_exceptions=True)
        self._listeners.clear()

    async def _serve_tcp(self, key: Key, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with server:
            while True:
                client, pod = await accept(server, self._limit)
                task = loop.create_task(self._forward(key, client))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
                task.add_done_callback(functools.partial(self._limit.release, pod))

    async def _serve_udp(self, key: Key, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: UdpServicePort(lambda: self._open(key), self._limit), sock=server
        )
        try:
            await loop.create_future()  # until it is cancelled
        finally:
            transport.close()

    async def _forward(self, key: Key, client: socket.socket) -> None:
        with client:
            try:
                endpoint = await self._open(key)
            except (YardError, OSError):
                return
            with endpoint:
                await forward(client, endpoint)

    async def _open(self, key: Key) -> socket.socket:
        """A connection to one of the endpoints, in turn."""
        protocol, address, number = key
        external = self._external.get(address)
        if external:
            connection = socket.socket()
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, external)
            return connection
        endpoints = self._ports[key].endpoints
        if not endpoints:
            raise YardError(f"service {address}:{number} has no ready pods")
        host, port = endpoints[next(self._round_robin) % len(endpoints)]
        return await self._network.connect(host, port, protocol)


async def forward(left: socket.socket, right: socket.socket) -> None:
    """Copy both ways, until both sides are at their end."""
    await asyncio.gather(_copy(left, right), _copy(right, left), return_exceptions=True)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(source, _CHUNK):
            await loop.sock_sendall(target, data)
    finally:
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
