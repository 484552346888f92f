"""A pod that opens connections without end takes neither the files of the plane nor the network of other pods."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

from torchyard.node.network.connection_limit import ConnectionLimit, accept
from torchyard.node.network.dns import DnsServer

SERVER_FAILURE, OK = 2, 0


def query(name: str, number: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)


class Replies(asyncio.DatagramProtocol):
    """A client that counts the codes of its replies."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.codes.append(data[3] & 0xF)


@contextlib.asynccontextmanager
async def dns_server() -> AsyncIterator[tuple[asyncio.DatagramTransport, Replies]]:
    """A client of a DNS server whose upstream server never answers."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        server = DnsServer(
            lambda: {"a.default.svc.cluster.local": ["10.96.0.7"]},
            domain="cluster.local",
            upstream=["127.0.0.1"],
            port=silent.getsockname()[1],
        )
        transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
        address = transport.get_extra_info("sockname")
        client, replies = await loop.create_datagram_endpoint(Replies, remote_addr=address)
        try:
            yield client, replies
        finally:
            client.close()
            transport.close()
            for task in server._tasks:
                task.cancel()
            await asyncio.gather(*server._tasks, return_exceptions=True)


async def test_a_flood_of_queries_opens_a_limited_number_of_sockets() -> None:
    async with dns_server() as (client, replies):
        for number in range(200):
            client.sendto(query(f"host-{number}.example.com", number))
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while replies.codes.count(SERVER_FAILURE) < 72:
                await asyncio.sleep(0.01)
        client.sendto(query("a.default.svc.cluster.local", 999))
        async with asyncio.timeout(10):
            while OK not in replies.codes:
                await asyncio.sleep(0.01)


async def test_a_pod_gets_a_limited_number_of_connections_and_new_ones_when_it_closes_them() -> None:
    limit = ConnectionLimit(16)  # 8 for one pod
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        clients = [socket.create_connection(server.getsockname()) for _ in range(12)]
        accepted = [await accept(server, limit) for _ in range(8)]
        waiting = asyncio.create_task(accept(server, limit))
        loop = asyncio.get_running_loop()
        for client in clients[8:]:
            client.setblocking(False)
            assert await loop.sock_recv(client, 1) == b""
        connection, pod = accepted[0]
        connection.close()
        limit.release(pod)
        clients.append(socket.create_connection(server.getsockname()))
        accepted.append(await asyncio.wait_for(waiting, 10))
        for connection in [*clients, *(connection for connection, _ in accepted)]:
            connection.close()


def test_all_pods_together_have_a_limit() -> None:
    limit = ConnectionLimit(16)
    taken = [limit.acquire(f"10.244.0.{number}") for number in range(20)]
    assert taken == [True] * 16 + [False] * 4
    limit.release("10.244.0.1")
    assert limit.acquire("10.244.0.19")


async def test_a_failed_accept_does_not_end_the_server() -> None:
    failures = [OSError(24, "Too many open files"), ConnectionAbortedError(103, "aborted")]

    class FailingSocket(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if failures:
                raise failures.pop()
            return super().accept()

    with FailingSocket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        client.connect(server.getsockname())
        connection, pod = await asyncio.wait_for(accept(server, ConnectionLimit(16)), 10)
        connection.close()
    assert (pod, failures) == ("127.0.0.1", [])
