"""gRPC probes against servers that speak just enough HTTP/2, in this process and in a pod."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from tests.node.conftest import RunningNode

from torchyard.node.pod import grpc_probe

# replies to every call with the status that the first byte of the service's name selects; SERVING without one
SERVE = r"""
import socket, struct, threading
def frame(kind, flags, stream, payload):
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload
def serve(link):
    stream = link.makefile("rb")
    assert stream.read(24).startswith(b"PRI * HTTP/2.0")
    link.sendall(frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678"))
    while head := stream.read(9):
        payload = stream.read(int.from_bytes(head[:3], "big"))
        if head[3] == 0:
            status = payload[7:8] or b"1"
            message = b"\x08" + bytes([int(status)])
            link.sendall(frame(1, 4, 1, b"\x88") + frame(0, 0, 1, b"\0" + struct.pack("!I", 2) + message))
            link.sendall(frame(1, 5, 1, b"\0\x0bgrpc-status\x010"))
server = socket.create_server(("", PORT))
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


async def connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return connection


async def test_a_server_that_closes_the_connection_or_resets_the_call_fails_the_check() -> None:
    replies = iter((b"", struct.pack("!I", 4)[1:] + struct.pack("!BBI", 3, 0, 1) + b"\0\0\0\7"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        writer.write(next(replies))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for reason in ("the connection was closed", "the server refused the call"):
            with pytest.raises(grpc_probe.HealthCheckFailed, match=reason):
                await grpc_probe.check(await connect(port), authority="x", service="")


async def test_a_pod_is_ready_once_its_grpc_service_serves(node: RunningNode) -> None:
    for name, probe in (("serving", {"port": 5000}), ("other", {"port": 5000, "service": "2"})):
        container = {
            "name": "main",
            "image": "python:3",
            "command": ["python3", "-c", SERVE.replace("PORT", "5000")],
            "readinessProbe": {"grpc": probe, "periodSeconds": 1, "timeoutSeconds": 5},
        }
        await node.create(name, {"containers": [container]})
    await node.until("serving", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))
    for _ in range(300):
        message = (await node.messages("other")).get("Unhealthy", "")
        if "service unhealthy" in message:
            break
        await asyncio.sleep(0.05)
    assert message == 'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")'


async def test_the_end_of_a_log_without_a_newline_is_the_termination_message(node: RunningNode) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await node.script("failed", "echo first; printf DONE; exit 1", container=policy)
    pod = await node.phase("failed", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "first\nDONE"
    assert await node.log("failed") == "first\nDONE"
