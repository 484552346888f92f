"""gRPC probes against servers that speak just enough HTTP/2, in this process and in a pod."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

import pytest
from tests.node.conftest import RunningNode

from torchyard.node.pod import grpc_probe, probes
from torchyard.node.shim.client import ShimClient

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


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


async def connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return connection


async def test_a_server_that_closes_the_connection_or_resets_the_call_fails_the_check() -> None:
    assert await failures(b"", frame(3, 0, 1, b"\0\0\0\7")) == [
        "the connection was closed",
        "the server reset the call: REFUSED_STREAM",
    ]


async def test_a_server_that_goes_away_before_its_response_fails_the_check_with_its_reason() -> None:
    last_stream = b"\x7f\xff\xff\xff"
    assert await failures(
        frame(7, 0, 0, last_stream + b"\0\0\0\0"),
        frame(7, 0, 0, last_stream + b"\0\0\0\x0bmax_age"),
        frame(7, 0, 0, last_stream + b"\0\0\1\0"),
    ) == [
        "the server closed the connection: NO_ERROR",
        "the server closed the connection: ENHANCE_YOUR_CALM, 'max_age'",
        "the server closed the connection: error 256",
    ]


async def test_malformed_frames_fail_the_check() -> None:
    padding = "the padding of a DATA frame is longer than the frame"
    assert await failures(
        frame(0, 9, 1, b""), frame(0, 9, 1, b"\3ab"), frame(7, 0, 0, b"\0\0\0\0"), frame(3, 0, 1, b"\0")
    ) == [padding, padding, "a GOAWAY frame is too short", "an error code does not have four bytes"]


async def failures(*replies: bytes) -> list[str]:
    """Why the check fails against servers that send these bytes."""
    remaining, reasons = iter(replies), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        writer.write(next(remaining))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for _ in replies:
            with pytest.raises(grpc_probe.HealthCheckFailed) as failure:
                await grpc_probe.check(await connect(port), authority="x", service="")
            reasons.append(str(failure.value))
    return reasons


async def test_an_exception_of_a_handler_is_a_failed_probe(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_args: object, **_more: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(probes, "run_handler", fail)
    reasons: asyncio.Queue[str] = asyncio.Queue()
    container = {"name": "main", "livenessProbe": {"failureThreshold": 1}}
    worker = probes.ProbeWorker(
        cast(ShimClient, None),
        container,
        host="127.0.0.1",
        changed=lambda: None,
        report=lambda reason, message: reasons.put_nowait(f"{reason}: {message}"),
        kill=reasons.put_nowait,
    )
    failed = "Unhealthy: Liveness probe failed: IndexError: out of range"
    assert [await reasons.get(), await reasons.get()] == [failed, "liveness"]
    assert "probe failed: container=main" in caplog.text
    await worker.close()


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
    for _ in range(1200):
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
