"""Connections to the addresses of Services, to node ports and to host ports are forwarded to pods.

A userspace proxy on sockets in the cluster's network and on those of the machine. Headless services, which training
uses, do not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterable

from torchyard.api.errors import YardError
from torchyard.node.network.connection_limit import ConnectionLimit, accept, close_when_done
from torchyard.node.network.dialer import ClusterDialer
from torchyard.node.network.service_ports import ListenKey, ServicePort
from torchyard.node.network.session_affinity import SessionAffinity
from torchyard.node.network.udp_proxy import UdpServicePort
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_BACKLOG = 128


class ServiceProxy:
    """Keeps one listening socket per port.

    `network` is None where pods are in the network of the machine: cluster IPs do not exist there. `external` maps
    service addresses to addresses of the machine itself, such as the API server's. `failed` is called with the owner
    of a port that cannot be listened on, and why. `freed` is called with a service that may now have a port which
    another one had: an `update` listens on it.
    """

    def __init__(
        self,
        network: ClusterNetwork | None,
        dialer: ClusterDialer,
        *,
        external: dict[str, tuple[str, int]] | None = None,
        failed: Callable[[ServicePort, str], None] = lambda port, reason: None,
        freed: Callable[[str], None] = lambda service: None,
    ) -> None:
        self._network, self._dialer, self._failed, self._freed = network, dialer, failed, freed
        self._external = external or {}
        self._ports: dict[ListenKey, ServicePort] = {}
        self._keys_of: dict[str, set[ListenKey]] = {}  # by service
        self._service_of: dict[ListenKey, str] = {}
        self._waiting: dict[ListenKey, list[str]] = {}  # services that want a port which another one has
        self._failures: dict[tuple[str, ListenKey], str] = {}  # why a service does not have a port: logged once
        self._round_robin = itertools.count()
        self._affinity = SessionAffinity()
        self._listeners: dict[ListenKey, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._limit = ConnectionLimit()

    async def update(self, service: str, ports: Iterable[ServicePort]) -> bool:
        """Serve these ports of a service, and no other ports of it; returns False if another attempt may help.

        A port that another service has stays with it, as long as it wants it.
        """
        wanted = {port.key: port for port in ports if port.key.on_machine or self._network is not None}
        for key in self._keys_of.pop(service, set()) - wanted.keys():
            self._failures.pop((service, key), None)
            if self._service_of.get(key) == service:
                await self._stop_listening(key)
            else:
                self._stop_waiting(service, key)
        if wanted:
            self._keys_of[service] = set(wanted)
        own = {key: port for key, port in wanted.items() if self._service_of.setdefault(key, service) == service}
        for key in wanted.keys() - own.keys():
            waiting = self._waiting.setdefault(key, [])
            if service not in waiting:
                waiting.append(service)
            self._not_served(service, wanted[key], f"in use by {self._service_of[key]}")
        self._ports.update(own)
        for key in own.keys() - self._listeners.keys():
            try:
                server = await self._listen(key)
            except (YardError, OSError) as error:
                reason = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
                self._not_served(service, own[key], reason)
                continue
            self._failures.pop((service, key), None)
            serve = self._serve_udp if key.protocol == "udp" else self._serve_tcp
            self._listeners[key] = asyncio.create_task(serve(key, server))
        return own.keys() <= self._listeners.keys()

    def _not_served(self, service: str, port: ServicePort, reason: str) -> None:
        if self._failures.get((service, port.key)) != reason:
            self._failures[service, port.key] = reason
            log.warning("cannot listen: protocol=%s address=%s port=%s error=%r", *port.key[:3], reason)
        self._failed(port, reason)

    def _stop_waiting(self, service: str, key: ListenKey) -> None:
        waiting = self._waiting.get(key, [])
        if service in waiting:
            waiting.remove(service)
        if not waiting:
            self._waiting.pop(key, None)

    def listens(self, address: str, port: int) -> bool:
        """Whether a TCP port of the machine is served."""
        return ListenKey("tcp", address, port, on_machine=True) in self._listeners

    async def _listen(self, key: ListenKey) -> socket.socket:
        if not key.on_machine:
            assert self._network is not None
            return await self._network.listen(key.protocol, key.address, key.port)
        try:  # a name would be resolved here, while everything else waits
            address = ipaddress.ip_address(key.address)
        except ValueError:
            raise OSError(errno.EADDRNOTAVAIL, f"{key.address!r} is not an IP address") from None
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        is_udp = key.protocol == "udp"
        server = socket.socket(family, socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM)
        try:
            if not is_udp:  # a second UDP socket would take datagrams of the first one
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((key.address, key.port))
            if not is_udp:
                server.listen(_BACKLOG)
            server.setblocking(False)
        except OSError:
            server.close()
            raise
        return server

    async def _stop_listening(self, key: ListenKey) -> None:
        self._ports.pop(key, None)
        listener = self._listeners.pop(key, None)
        if listener is not None:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)  # the port is free when this returns
            if not key.on_machine and self._network is not None:
                with contextlib.suppress(YardError):
                    await self._network.close(*key[:3])
        self._service_of.pop(key, None)
        for service in self._waiting.pop(key, ()):
            self._freed(service)

    async def close(self) -> None:
        for task in [*self._listeners.values(), *self._connections]:
            task.cancel()
        await asyncio.gather(*self._listeners.values(), *self._connections, return_exceptions=True)
        self._listeners.clear()

    async def _serve_tcp(self, key: ListenKey, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with server:
            while True:
                client, pod = await accept(server, self._limit)
                task = loop.create_task(self._forward(key, client, pod))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
                task.add_done_callback(functools.partial(self._limit.release, pod))
                close_when_done(client, task)

    async def _serve_udp(self, key: ListenKey, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: UdpServicePort(functools.partial(self._open, key), self._limit), sock=server
        )
        try:
            await loop.create_future()  # until it is cancelled
        finally:
            transport.close()

    async def _forward(self, key: ListenKey, client: socket.socket, address: str) -> None:
        with client:
            try:
                endpoint = await self._open(key, address)
            except (YardError, OSError):
                return
            with endpoint:
                await forward(client, endpoint)

    async def _open(self, key: ListenKey, client: str) -> socket.socket:
        """A connection to one of the endpoints: the client's own, or each in turn. Tries others if one refuses."""
        external = self._external.get(key.address)
        if external:
            return await self._dialer.connect(external[0], external[1])
        port = self._ports[key]
        affinity_key = (port.affinity_key, client)
        preferred = self._affinity.get(affinity_key, port.affinity_seconds, port.endpoints)
        start = next(self._round_robin)
        in_turn = [port.endpoints[(start + number) % len(port.endpoints)] for number in range(len(port.endpoints))]
        error: Exception = YardError(f"service {key.address}:{key.port} has no ready pods")
        for endpoint in dict.fromkeys((*((preferred,) if preferred else ()), *in_turn)):
            try:
                connection = await self._dialer.connect(endpoint[0], endpoint[1], key.protocol)
            except OSError as refused:
                error = refused
                continue
            if port.affinity_seconds:
                self._affinity.put(affinity_key, endpoint)
            return connection
        raise error


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
