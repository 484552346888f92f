"""Connections to the addresses of Services, to node ports and to host ports are forwarded to pods.

A userspace proxy on sockets in the cluster's network and on those of the machine. Headless services, which training
uses, do not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
    of a port that cannot be listened on, and why.
    """

    def __init__(
        self,
        network: ClusterNetwork | None,
        dialer: ClusterDialer,
        *,
        external: dict[str, tuple[str, int]] | None = None,
        failed: Callable[[ServicePort, str], None] = lambda port, reason: None,
    ) -> None:
        self._network, self._dialer, self._failed = network, dialer, failed
        self._external = external or {}
        self._ports: dict[ListenKey, ServicePort] = {}
        self._keys_of: dict[str, set[ListenKey]] = {}  # by service
        self._service_of: dict[ListenKey, str] = {}
        self._round_robin = itertools.count()
        self._affinity = SessionAffinity()
        self._listeners: dict[ListenKey, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._limit = ConnectionLimit()

    async def update(self, service: str, ports: Iterable[ServicePort]) -> bool:
        """Serve these ports of a service, and no other ports of it; returns whether all of them are served."""
        current = {port.key: port for port in ports if port.key.on_machine or self._network is not None}
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
                server = await self._listen(key)
            except (YardError, OSError) as error:
                reason = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
                log.warning("cannot listen: protocol=%s address=%s port=%s error=%r", *key[:3], reason)
                self._failed(current[key], reason)
                continue
            serve = self._serve_udp if key.protocol == "udp" else self._serve_tcp
            self._listeners[key] = asyncio.create_task(serve(key, server))
        return current.keys() <= self._listeners.keys()

    async def _listen(self, key: ListenKey) -> socket.socket:
        if not key.on_machine:
            assert self._network is not None
            return await self._network.listen(key.protocol, key.address, key.port)
        family = socket.AF_INET6 if ":" in key.address else socket.AF_INET
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
        self._service_of.pop(key, None)
        self._ports.pop(key, None)
        listener = self._listeners.pop(key, None)
        if listener is None:
            return
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)  # the port is free when this returns
        if not key.on_machine and self._network is not None:
            with contextlib.suppress(YardError):
                await self._network.close(*key[:3])

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
