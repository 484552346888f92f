"""UDP ports of services: a client's datagrams go to one of the service's pods, and the replies back to the client.

UDP has no connections, so a table remembers which pod each client was given, until the flow has been idle for a while.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from torchyard.api.errors import YardError
from torchyard.node.network.connection_limit import ConnectionLimit

Address = tuple[str, int]
OpenEndpoint = Callable[[str], Awaitable[socket.socket]]  # of a client
# as long as the kernel keeps an idle UDP flow (nf_conntrack_udp_timeout_stream)
IDLE_SECONDS = 120.0
_QUEUE_LIMIT = 64


class UdpServicePort(asyncio.DatagramProtocol):
    """Serves one bound UDP socket. `open_endpoint` returns a socket connected to a pod for a client."""

    def __init__(self, open_endpoint: OpenEndpoint, limit: ConnectionLimit) -> None:
        self._open_endpoint, self._limit = open_endpoint, limit
        self._flows: dict[Address, _UdpFlow] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is not a DatagramTransport by type
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        flow = self._flows.get(addr)
        if flow is None:
            if not self._limit.acquire(addr[0]):
                return  # as a full buffer would drop it
            flow = self._flows[addr] = _UdpFlow(lambda reply: self._transport.sendto(reply, addr))
            flow.start(functools.partial(self._open_endpoint, addr[0]), ended=lambda: self._forget(addr))
        flow.send(data)

    def _forget(self, addr: Address) -> None:
        if self._flows.pop(addr, None) is not None:
            self._limit.release(addr[0])

    def connection_lost(self, _: Exception | None) -> None:
        for flow in list(self._flows.values()):
            flow.end()


class _UdpFlow(asyncio.DatagramProtocol):
    """One client and the pod that its datagrams go to."""

    def __init__(self, reply: Callable[[bytes], None]) -> None:
        self._reply = reply
        self._queue: list[bytes] = []
        self._endpoint: asyncio.DatagramTransport | None = None
        self._last_seen = 0.0

    def start(self, open_endpoint: Callable[[], Awaitable[socket.socket]], *, ended: Callable[[], object]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._last_seen = self._loop.time()
        self._opening = self._loop.create_task(self._open(open_endpoint))
        self._timer = self._loop.call_later(IDLE_SECONDS, self._check_idle)

    async def _open(self, open_endpoint: Callable[[], Awaitable[socket.socket]]) -> None:
        try:
            connection = await open_endpoint()
            self._endpoint, _ = await self._loop.create_datagram_endpoint(lambda: self, sock=connection)
        except (YardError, OSError):
            self.end()  # no pod is ready; UDP drops the datagrams without an error
            return
        for data in self._queue:
            self._endpoint.sendto(data)
        self._queue.clear()

    def send(self, data: bytes) -> None:
        self._last_seen = self._loop.time()
        if self._endpoint is not None:
            self._endpoint.sendto(data)
        elif len(self._queue) < _QUEUE_LIMIT:
            self._queue.append(data)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._last_seen = self._loop.time()
        self._reply(data)

    def error_received(self, exc: Exception) -> None:
        """The pod does not listen any more: the client's next datagram goes to another one."""
        self.end()

    def _check_idle(self) -> None:
        left = self._last_seen + IDLE_SECONDS - self._loop.time()
        if left <= 0:
            self.end()
        else:
            self._timer = self._loop.call_later(left, self._check_idle)

    def end(self) -> None:
        self._timer.cancel()
        if self._opening is not asyncio.current_task():
            self._opening.cancel()
        if self._endpoint is not None:
            self._endpoint.close()
        self._ended()
