"""Pods reach the world outside their own network: here, a server of the test's on the machine's own address."""

from __future__ import annotations

import asyncio
import hashlib

from tests.node import support
from tests.node.conftest import RunningNode

from torchyard.node.node_object import host_address

TALK = """
import hashlib, socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
data = bytes(range(256)) * 20000
link.sendall(data)
link.shutdown(socket.SHUT_WR)
back = b"".join(iter(lambda: link.recv(65536), b""))
print(hashlib.sha256(data).hexdigest() == back.decode())
"""


async def test_a_pod_connects_to_the_outside_in_both_directions(node: RunningNode) -> None:
    support.need_outbound()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).hexdigest().encode())
        writer.close()

    async with await asyncio.start_server(answer, host_address()) as server:
        host, port = server.sockets[0].getsockname()[:2]
        command = ["python3", "-c", TALK, host, str(port)]
        await node.script("p", "", container={"image": "python:3", "command": command})
        await node.phase("p", "Succeeded")
        assert await node.log("p") == "True\n"


async def test_a_refused_outbound_connection_is_reset_at_once(node: RunningNode) -> None:
    support.need_outbound()
    async with await asyncio.start_server(lambda *_: None, host_address()) as server:
        host, port = server.sockets[0].getsockname()[:2]
    script = f"import socket; link = socket.create_connection(('{host}', {port}), timeout=20); assert not link.recv(1)"
    await node.script("p", "", container={"image": "python:3", "command": ["python3", "-c", script]})
    await node.phase("p", "Failed")
    assert "ConnectionRe" in await node.log("p")  # reset, or refused


async def test_the_relay_refuses_connections_to_itself(node: RunningNode) -> None:
    support.need_outbound()
    ranges = node.plane.agent.context.settings.network if node.plane.agent else None
    assert ranges
    relay = (ranges.gateway, ranges.relay)
    script = f"import socket; socket.create_connection({relay!r}, timeout=20).recv(1)"
    await node.script("p", "", container={"image": "python:3", "command": ["python3", "-c", script]})
    await node.phase("p", "Failed")
    assert "ConnectionRe" in await node.log("p")
