"""The cluster's resolver: answers at once, from a table, and asks the machine's own servers about the rest.

Where the machine has none that answers, an unknown name is refused immediately: a program that waits for a resolver
waits ten seconds per lookup.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

_A, _PTR, _AAAA, _IN = 1, 12, 28, 1
_OK, _NAME_ERROR, _REFUSED = 0, 3, 5
# A question or an answer may be lost on the way, and a program would notice five seconds later: it is asked again.
_AGAIN_SECONDS, _TIMES = 0.5, 4
TTL = 5


def question(packet: bytes) -> tuple[str, int, int]:
    """(name in lower case, type, where the question ends)."""
    labels, at = [], 12
    while packet[at]:
        size = packet[at]
        if size & 0xC0:
            raise ValueError("a question is not compressed")
        labels.append(packet[at + 1 : at + 1 + size].decode("ascii").lower())
        at += size + 1
    return ".".join(labels), struct.unpack_from("!H", packet, at + 1)[0], at + 5


def reply(packet: bytes, end: int, code: int, records: list[tuple[int, bytes]]) -> bytes:
    """An authoritative answer to the packet's one question."""
    flags = 0x8400 | (struct.unpack_from("!H", packet, 2)[0] & 0x0100) | 0x0080 | code
    head = packet[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, _IN, TTL, len(data)) + data for kind, data in records)
    return head + packet[12:end] + body


class Resolver(asyncio.DatagramProtocol):
    """Serves one UDP socket. `names` is asked anew for every packet, so it is always current."""

    def __init__(
        self, names: Callable[[], Mapping[str, list[str]]], *, domain: str, upstream: list[str], port: int = 53
    ) -> None:
        self._names, self._domain, self._upstream, self._port = names, domain, upstream, port
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is no DatagramTransport by type
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            name, kind, end = question(data)
        except (IndexError, ValueError, struct.error):
            return
        answer = self.answer(data, name, kind, end)
        if answer is not None:
            self._transport.sendto(answer, addr)
            return
        task = asyncio.get_running_loop().create_task(self._forward(data, end, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer(self, packet: bytes, name: str, kind: int, end: int) -> bytes | None:
        """The answer to what is the cluster's business; None for the rest of the world."""
        if name.endswith((".in-addr.arpa", ".ip6.arpa")):
            return reply(packet, end, _NAME_ERROR, [])
        if name != self._domain and not name.endswith(f".{self._domain}"):
            return None if self._upstream else reply(packet, end, _NAME_ERROR, [])
        found = self._names().get(name)
        if found is None:
            return reply(packet, end, _NAME_ERROR, [])
        records = [(_A, ipaddress.ip_address(one).packed) for one in found] if kind == _A else []
        return reply(packet, end, _OK, records)

    async def _forward(self, packet: bytes, end: int, address: tuple[str, int]) -> None:
        for server in self._upstream:
            answer = await self._ask(server, packet)
            if answer is not None:
                self._transport.sendto(answer, address)
                return
        self._transport.sendto(reply(packet, end, _REFUSED, []), address)

    async def _ask(self, server: str, packet: bytes) -> bytes | None:
        """What a server of the machine says, or None if it cannot be reached or does not answer in two seconds."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bytes] = loop.create_future()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UpstreamReply(waiting), remote_addr=(server, self._port)
            )
        except OSError:
            return None
        try:
            for _ in range(_TIMES):
                transport.sendto(packet)
                done, _ = await asyncio.wait([waiting], timeout=_AGAIN_SECONDS)
                if done:
                    return waiting.result()
        except OSError:
            return None
        finally:
            transport.close()
        return None


class _UpstreamReply(asyncio.DatagramProtocol):
    def __init__(self, waiting: asyncio.Future[bytes]) -> None:
        self._waiting = waiting

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._waiting.done():
            self._waiting.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._waiting.done():
            self._waiting.set_exception(exc)


def machine_servers(path: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The machine's own resolvers, those that can be reached over IPv4."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return []
    return [one[1] for one in words if one[:1] == ["nameserver"] and len(one) > 1 and ":" not in one[1]]
