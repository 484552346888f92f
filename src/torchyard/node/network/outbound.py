"""Pods' TCP connections to the outside: accepted in the cluster's network, continued from the machine's.

A relay in user space needs neither root nor IP forwarding. UDP does not leave, except for DNS, which the DNS server
forwards.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import struct
from collections.abc import Callable

from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.network.connection_limit import ConnectionLimit, accept, close_when_done
from torchyard.node.network.proxy import forward
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

_SO_ORIGINAL_DST = 80
_CONNECT_SECONDS = 60.0


class OutboundRelay:
    """`redirect` says where a destination is: a node port may be open on loopback alone."""

    def __init__(
        self,
        network: ClusterNetwork,
        settings: NetworkSettings,
        *,
        redirect: Callable[[tuple[str, int]], tuple[str, int]] = lambda destination: destination,
    ) -> None:
        self._network, self._settings, self._redirect = network, settings, redirect
        self._connections: set[asyncio.Task[None]] = set()
        self._limit = ConnectionLimit()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        server = await self._network.listen("tcp", self._settings.gateway, self._settings.relay)
        try:
            with server:
                while True:
                    client, pod = await accept(server, self._limit)
                    task = loop.create_task(self._relay(client))
                    self._connections.add(task)
                    task.add_done_callback(self._connections.discard)
                    task.add_done_callback(functools.partial(self._limit.release, pod))
                    close_when_done(client, task)
        finally:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _relay(self, client: socket.socket) -> None:
        client.setblocking(False)
        with client, socket.socket() as outside:
            outside.setblocking(False)
            try:
                destination = original_destination(client)
                if destination[0] == self._settings.gateway:
                    raise ConnectionRefusedError("nothing but the relay listens on the gateway")
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(outside, self._redirect(destination))
            except (OSError, TimeoutError) as error:
                log.info("outbound connection failed: error=%r", str(error))
                # The pod sees a reset: the closest to a refusal once a connection is accepted.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            await forward(client, outside)


def original_destination(client: socket.socket) -> tuple[str, int]:
    """The address that a redirected connection was made to."""
    port, address = struct.unpack("!2xH4s8x", client.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(address), port
