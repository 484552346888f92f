"""Services with an address of their own: connections to it are carried to one of the service's pods.

A userspace proxy on sockets inside the cluster's network. Headless services, which training uses, never come here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.node.network.udp_proxy import UdpServicePort
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

Connect = Callable[[str, int], Awaitable[socket.socket]]
_SERVICE_LABEL = "kubernetes.io/service-name"
Key = tuple[str, str, int]  # tcp or udp, address, port
_KINDS = {"TCP": "tcp", "UDP": "udp"}  # SCTP is not served
_BLOCK = 256 * 1024


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of one service address, and where it leads."""

    kind: str  # tcp or udp
    address: str
    port: int
    goals: tuple[tuple[str, int], ...]

    @property
    def key(self) -> Key:
        return self.kind, self.address, self.port


def doors(services: Iterable[Object], slices: Iterable[Object]) -> list[ServicePort]:
    """Pure: every TCP and UDP port of every service that has an address."""
    by_service: dict[tuple[str, str], list[Object]] = {}
    for one in slices:
        owner = (one["metadata"].get("labels") or {}).get(_SERVICE_LABEL)
        if owner:
            by_service.setdefault((one["metadata"]["namespace"], owner), []).append(one)
    found = []
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        address = spec.get("clusterIP")
        if not address or address == "None":
            continue
        for port in spec.get("ports") or ():
            kind = _KINDS.get(port.get("protocol") or "TCP")
            if kind is None:
                continue
            goals = [
                goal
                for one in by_service.get((metadata["namespace"], metadata["name"]), ())
                for goal in _goals(one, port.get("name") or "")
            ]
            found.append(ServicePort(kind, address, port["port"], tuple(goals)))
    return found


def _goals(one: Object, name: str) -> list[tuple[str, int]]:
    numbers = [port["port"] for port in one.get("ports") or () if (port.get("name") or "") == name and port.get("port")]
    return [
        (address, number)
        for endpoint in one.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready", True) is not False
        for address in endpoint.get("addresses") or ()
        for number in numbers
    ]


class ServiceProxy:
    """Keeps one listening socket per door. `outside` are addresses on the machine itself, such as the API server's."""

    def __init__(self, network: ClusterNetwork, *, outside: dict[str, tuple[str, int]] | None = None) -> None:
        self._network = network
        self._outside = outside or {}
        self._doors: dict[Key, ServicePort] = {}
        self._turns = itertools.count()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._carried: set[asyncio.Task[None]] = set()

    async def update(self, wanted: Iterable[ServicePort]) -> None:
        current = {door.key: door for door in wanted}
        for key in [key for key in self._tasks if key not in current]:
            self._tasks.pop(key).cancel()
            self._doors.pop(key, None)
            with contextlib.suppress(YardError):
                await self._network.close(*key)
        self._doors.update(current)
        for key in [key for key in current if key not in self._tasks]:
            try:
                server = await self._network.listen(*key)
            except YardError as failed:
                log.warning("service address %s %s:%s cannot be served: %s", *key, failed)
                continue
            serve = self._serve_datagrams if key[0] == "udp" else self._serve
            self._tasks[key] = asyncio.create_task(serve(key, server))

    async def close(self) -> None:
        for task in [*self._tasks.values(), *self._carried]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._carried, return_exceptions=True)

    async def _serve(self, key: Key, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with server:
            while True:
                link, _ = await loop.sock_accept(server)
                task = loop.create_task(self._carry(key, link))
                self._carried.add(task)
                task.add_done_callback(self._carried.discard)

    async def _serve_datagrams(self, key: Key, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: UdpServicePort(lambda: self._open(key)), sock=server)
        try:
            await loop.create_future()  # until it is cancelled
        finally:
            transport.close()

    async def _carry(self, key: Key, link: socket.socket) -> None:
        with link:
            try:
                goal = await self._open(key)
            except (YardError, OSError):
                return
            with goal:
                await carry(link, goal)

    async def _open(self, key: Key) -> socket.socket:
        kind, address, number = key
        outside = self._outside.get(address)
        if outside:
            loop = asyncio.get_running_loop()
            direct = socket.socket()
            direct.setblocking(False)
            await loop.sock_connect(direct, outside)
            return direct
        goals = self._doors[key].goals
        if not goals:
            raise YardError(f"service {address}:{number} has no ready pods")
        host, port = goals[next(self._turns) % len(goals)]
        return await self._network.connect(host, port, kind)


async def carry(left: socket.socket, right: socket.socket) -> None:
    """Both ways, until both are at their end."""
    await asyncio.gather(_one_way(left, right), _one_way(right, left), return_exceptions=True)


async def _one_way(source: socket.socket, goal: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(source, _BLOCK):
            await loop.sock_sendall(goal, data)
    finally:
        with contextlib.suppress(OSError):
            goal.shutdown(socket.SHUT_WR)
