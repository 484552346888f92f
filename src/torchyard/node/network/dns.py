"""The cluster's DNS server: answers from a table, and forwards queries for other names to the machine's own servers.

If none of those answers, a query is refused at once: a program whose query is dropped waits ten seconds per lookup.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from torchyard.node.network.connection_limit import ConnectionLimit

_A, _CNAME, _PTR, _AAAA, _IN = 1, 5, 12, 28, 1
_OK, _SERVER_FAILURE, _NAME_ERROR, _REFUSED = 0, 2, 3, 5
_MAX_FORWARDED = 256
# UDP may lose a packet, and a program would only retry after five seconds: the query is repeated here.
_RETRY_SECONDS, _TRIES = 0.5, 4
TTL = 5


def parse_question(packet: bytes) -> tuple[str, int, int]:
    """(name in lower case, type, where the question ends)."""
    labels, at = [], 12
    while packet[at]:
        size = packet[at]
        if size & 0xC0:
            raise ValueError("compressed names are not supported in a question")
        labels.append(packet[at + 1 : at + 1 + size].decode("ascii").lower())
        at += size + 1
    return ".".join(labels), struct.unpack_from("!H", packet, at + 1)[0], at + 5


def reply(packet: bytes, end: int, code: int, records: list[tuple[int, bytes]]) -> bytes:
    """An authoritative answer to the packet's one question."""
    flags = 0x8400 | (struct.unpack_from("!H", packet, 2)[0] & 0x0100) | 0x0080 | code
    head = packet[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, _IN, TTL, len(data)) + data for kind, data in records)
    return head + packet[12:end] + body


def encode_name(name: str) -> bytes:
    labels = (label.encode("ascii", "ignore")[:63] for label in name.split(".") if label)
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


async def _machine_addresses(name: str) -> list[str]:
    """What the machine itself resolves a name to."""
    try:
        results = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


class DnsServer(asyncio.DatagramProtocol):
    """Serves one UDP socket. `names` is called for every packet, so that answers are always current."""

    def __init__(
        self,
        names: Callable[[], Mapping[str, list[str]]],
        *,
        domain: str,
        upstream: list[str],
        port: int = 53,
        aliases: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._names, self._domain, self._upstream, self._port = names, domain, upstream, port
        self._aliases = aliases
        self._tasks: set[asyncio.Task[None]] = set()
        self._limit = ConnectionLimit(_MAX_FORWARDED)  # each query takes an open file until it is answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is not a DatagramTransport by type
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            name, kind, end = parse_question(data)
        except (IndexError, ValueError, struct.error):
            return
        answer = None if name in self._aliases() else self.answer(data, name, kind, end)
        if answer is not None:
            self._transport.sendto(answer, addr)
            return
        if not self._limit.acquire(addr[0]):
            self._transport.sendto(reply(data, end, _SERVER_FAILURE, []), addr)
            return
        task = asyncio.get_running_loop().create_task(self._forward(data, end, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(functools.partial(self._limit.release, addr[0]))

    def answer(self, packet: bytes, name: str, kind: int, end: int) -> bytes | None:
        """The answer for a name of the cluster; None for a name that is to be forwarded."""
        if name.endswith((".in-addr.arpa", ".ip6.arpa")):
            return reply(packet, end, _NAME_ERROR, [])
        if name != self._domain and not name.endswith(f".{self._domain}"):
            return None if self._upstream else reply(packet, end, _NAME_ERROR, [])
        addresses = self._names().get(name)
        if addresses is None:
            return reply(packet, end, _NAME_ERROR, [])
        records = [(_A, ipaddress.ip_address(address).packed) for address in addresses] if kind == _A else []
        return reply(packet, end, _OK, records)

    async def alias_answer(self, packet: bytes) -> bytes | None:
        """The answer for a Service of type ExternalName: the alias, and what it stands for. None for other names."""
        name, kind, end = parse_question(packet)
        target = self._aliases().get(name)
        if target is None:
            return None
        addresses = self._names().get(target)
        if addresses is None and kind == _A:
            addresses = await _machine_addresses(target)
        encoded = encode_name(target)
        records = [(name, _CNAME, encoded)]
        records += [(target, _A, ipaddress.ip_address(address).packed) for address in addresses or () if kind == _A]
        body = b"".join(
            encode_name(owner) + struct.pack("!HHIH", record, _IN, TTL, len(data)) + data
            for owner, record, data in records
        )
        head = reply(packet, end, _OK, [])
        return head[:6] + struct.pack("!H", len(records)) + head[8:] + body

    async def _forward(self, packet: bytes, end: int, address: tuple[str, int]) -> None:
        alias = await self.alias_answer(packet)
        if alias is not None:
            self._transport.sendto(alias, address)
            return
        for server in self._upstream:
            answer = await self._query(server, packet)
            if answer is not None:
                self._transport.sendto(answer, address)
                return
        self._transport.sendto(reply(packet, end, _REFUSED, []), address)

    async def _query(self, server: str, packet: bytes) -> bytes | None:
        """The answer of one of the machine's servers; None if it does not answer within two seconds."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UpstreamReply(answer), remote_addr=(server, self._port)
            )
        except OSError:
            return None
        try:
            for _ in range(_TRIES):
                transport.sendto(packet)
                done, _ = await asyncio.wait([answer], timeout=_RETRY_SECONDS)
                if done:
                    return answer.result()
        except OSError:
            return None
        finally:
            transport.close()
        return None


class _UpstreamReply(asyncio.DatagramProtocol):
    """The first packet from an upstream server sets the future."""

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._answer.done():
            self._answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def machine_servers(path: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The machine's own resolvers, those that can be reached over IPv4."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return []
    return [line[1] for line in words if line[:1] == ["nameserver"] and len(line) > 1 and ":" not in line[1]]
