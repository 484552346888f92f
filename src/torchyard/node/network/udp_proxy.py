"""UDP ports of services: a client's datagrams go to one of the service's pods, and the answers back to the client.

UDP has no connections, so who talked lately with whom is remembered, and forgotten after a silence.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from torchyard.api.errors import YardError

Address = tuple[str, int]
OpenGoal = Callable[[], Awaitable[socket.socket]]
# the kernel's own patience with a UDP conversation (nf_conntrack_udp_timeout_stream)
SILENCE_SECONDS = 120.0
_WAITING_AT_MOST = 64


class UdpServicePort(asyncio.DatagramProtocol):
    """Serves one bound UDP socket. `open_goal` gives a socket connected to one of the pods."""

    def __init__(self, open_goal: OpenGoal) -> None:
        self._open_goal = open_goal
        self._talks: dict[Address, _UdpFlow] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is no DatagramTransport by type
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        talk = self._talks.get(addr)
        if talk is None:
            talk = self._talks[addr] = _UdpFlow(lambda answer: self._transport.sendto(answer, addr))
            talk.begin(self._open_goal, ended=lambda: self._talks.pop(addr, None))
        talk.say(data)

    def connection_lost(self, _: Exception | None) -> None:
        for talk in list(self._talks.values()):
            talk.end()


class _UdpFlow(asyncio.DatagramProtocol):
    """One client and the pod it was led to."""

    def __init__(self, answer: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._waiting: list[bytes] = []
        self._goal: asyncio.DatagramTransport | None = None
        self._heard = 0.0

    def begin(self, open_goal: OpenGoal, *, ended: Callable[[], object]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._opening = self._loop.create_task(self._open(open_goal))
        self._timer = self._loop.call_later(SILENCE_SECONDS, self._check)

    async def _open(self, open_goal: OpenGoal) -> None:
        try:
            link = await open_goal()
        except (YardError, OSError):
            self.end()  # nobody is there; as UDP has it, nobody says so
            return
        self._goal, _ = await self._loop.create_datagram_endpoint(lambda: self, sock=link)
        for data in self._waiting:
            self._goal.sendto(data)
        self._waiting.clear()

    def say(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._goal is not None:
            self._goal.sendto(data)
        elif len(self._waiting) < _WAITING_AT_MOST:
            self._waiting.append(data)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._heard = self._loop.time()
        self._answer(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there any more: the client's next datagram finds another pod."""
        self.end()

    def _check(self) -> None:
        left = self._heard + SILENCE_SECONDS - self._loop.time()
        if left <= 0:
            self.end()
        else:
            self._timer = self._loop.call_later(left, self._check)

    def end(self) -> None:
        self._timer.cancel()
        if self._opening is not asyncio.current_task():
            self._opening.cancel()
        if self._goal is not None:
            self._goal.close()
        self._ended()
