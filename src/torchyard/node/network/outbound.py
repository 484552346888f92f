"""Pods' TCP connections to the outside world: taken up inside the cluster's network, carried on from the machine's.

A relay in user space needs neither root nor forwarding. UDP does not leave, but for names, which the resolver asks for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.network.proxy import carry
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

_SO_ORIGINAL_DST = 80
_CONNECT_SECONDS = 60.0


class OutboundRelay:
    def __init__(self, network: ClusterNetwork, ranges: NetworkSettings) -> None:
        self._network, self._ranges = network, ranges
        self._carried: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        server = await self._network.listen("tcp", self._ranges.gateway, self._ranges.relay)
        try:
            with server:
                while True:
                    link, _ = await loop.sock_accept(server)
                    task = loop.create_task(self._carry(link))
                    self._carried.add(task)
                    task.add_done_callback(self._carried.discard)
        finally:
            for task in self._carried:
                task.cancel()
            await asyncio.gather(*self._carried, return_exceptions=True)

    async def _carry(self, link: socket.socket) -> None:
        link.setblocking(False)
        with link, socket.socket() as direct:
            direct.setblocking(False)
            try:
                goal = original_goal(link)
                if goal[0] == self._ranges.gateway:
                    raise ConnectionRefusedError("nothing but the relay listens there")
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(direct, goal)
            except (OSError, TimeoutError) as failed:
                log.info("a pod's connection could not be carried on: %s", failed)
                # the pod sees a reset, the nearest to a refusal that is left
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            await carry(link, direct)


def original_goal(link: socket.socket) -> tuple[str, int]:
    """Where a redirected connection was meant to go."""
    port, address = struct.unpack("!2xH4s8x", link.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(address), port
