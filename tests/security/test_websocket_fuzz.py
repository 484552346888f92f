"""WebSockets of hostile clients: bad handshakes get 400, bad frames end the connection, and no traceback is logged."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.apiserver.streams.test_protocols import Echo
from tests.support.effort import rounds

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.http.server import HttpServer
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.streams.interfaces import Connection
from torchyard.apiserver.streams.pod_handler import PodStreamHandler

WITHIN = 30.0
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"}}
EXEC = "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true"
FORWARD = "/api/v1/namespaces/default/pods/p/portforward?ports=80"
PROTOCOLS = {
    EXEC: ["v5.channel.k8s.io", "v4.channel.k8s.io", ""],
    FORWARD: ["v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", ""],
}
KEY = base64.b64encode(b"0123456789abcdef").decode()
HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}


class Backend:
    """A node whose containers echo their input and whose ports refuse connections."""

    def __init__(self) -> None:
        self.started = 0

    async def execute(self, *_: Any, **__: Any) -> Echo:
        self.started += 1
        return Echo()

    attach = execute

    async def connect(self, pod: Any, port: int) -> Connection:
        raise errors.internal("connection refused")


class StreamRouter:
    """Routes every request to the streams of one pod, and collects what a server would log as its own defect."""

    def __init__(self) -> None:
        self.access_control = SimpleNamespace(authenticate=lambda _, __: User("alice"), static_user=lambda _, __: None)
        self.backend = Backend()
        self._streams = PodStreamHandler(self.backend)  # type: ignore[arg-type]
        self.defects: list[BaseException] = []

    def authenticate(self, _method: str, _path: str, _headers: object, _certificate: object) -> User:
        return User("alice")

    def authorize(self, method: str, path: str, query: Query, user: User, *, size: int = 0) -> None:
        return None

    async def handle(self, request: Request) -> Response:
        context: Any = SimpleNamespace(subresource=request.path.rpartition("/")[2])
        try:
            return await self._streams.handle(context, request, POD)
        except StatusError as error:
            return error_response(error)
        except Exception as error:
            self.defects.append(error)
            return error_response(errors.internal(repr(error)))


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[StreamRouter, int]]:
    router = StreamRouter()
    server = HttpServer(router)  # type: ignore[arg-type]
    port = await server.start("127.0.0.1", 0, None)
    try:
        yield router, port
    finally:
        await server.stop()


async def handshake(
    port: int, path: str, headers: dict[str, str], *, method: str = "GET", body: bytes = b""
) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers.items() if value)]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    async with asyncio.timeout(WITHIN):
        status = (await reader.readuntil(b"\r\n\r\n")).split()[1]
    return int(status), reader, writer


def frame(opcode: int, data: bytes, *, mask: bool = True, fin: bool = True, size: int | None = None) -> bytes:
    length = len(data) if size is None else size
    first = (0x80 if fin else 0) | opcode
    marker = 0x80 if mask else 0
    if length < 126:
        header = struct.pack(">BB", first, marker | length)
    elif length < 1 << 16:
        header = struct.pack(">BBH", first, marker | 126, length)
    else:
        header = struct.pack(">BBQ", first, marker | 127, length)
    return header + (b"\0\0\0\0" if mask else b"") + data


BAD_HANDSHAKES = {
    "no key": {"Sec-WebSocket-Key": ""},
    "a short key": {"Sec-WebSocket-Key": base64.b64encode(b"short").decode()},
    "a key that is not base64": {"Sec-WebSocket-Key": "é!!"},
    "a key of blanks": {"Sec-WebSocket-Key": "   "},
    "a long key": {"Sec-WebSocket-Key": "A" * 10_000},
    "no version": {"Sec-WebSocket-Version": ""},
    "version 8": {"Sec-WebSocket-Version": "8"},
    "a version that is not a number": {"Sec-WebSocket-Version": "x"},
    "no connection header": {"Connection": ""},
    "another connection header": {"Connection": "keep-alive"},
}


@pytest.mark.parametrize("path", [EXEC, FORWARD], ids=["exec", "portforward"])
async def test_a_bad_handshake_gets_400_and_starts_nothing(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (router, port):
        for name, changes in BAD_HANDSHAKES.items():
            status, _, writer = await handshake(port, path, {**HANDSHAKE, **changes})
            assert status == 400, name
            writer.close()
        status, _, writer = await handshake(port, path, HANDSHAKE, method="POST")
        assert status == 400
        writer.close()
        assert router.defects == []
        assert router.backend.started == 0
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("ports", ["", "0", "65536", "x", "-1", "²", "9" * 400, ",".join(["80"] * 65)])
async def test_bad_ports_get_400_before_the_upgrade(ports: str) -> None:
    from urllib.parse import quote

    path = f"/api/v1/namespaces/default/pods/p/portforward?ports={quote(ports)}"
    async with serving() as (router, port):
        status, _, writer = await handshake(port, path, {**HANDSHAKE, "Sec-WebSocket-Protocol": "v4.channel.k8s.io"})
        assert status == 400
        assert router.defects == []
        writer.close()


BAD_FRAMES = {
    "reserved bits": b"\xf2\x80\0\0\0\0",
    "an unknown opcode": frame(3, b"x"),
    "an unknown control opcode": frame(11, b"x"),
    "a fragmented ping": frame(9, b"x", fin=False),
    "a ping of 200 bytes": frame(9, b"x" * 200),
    "a continuation of nothing": frame(0, b"x"),
    "text that is not UTF-8": frame(1, b"\xff\xfe"),
    "a close frame of one byte": frame(8, b"x"),
    "a close code that does not exist": frame(8, struct.pack(">H", 1)),
    "a message of 2 to the power of 63 bytes": frame(2, b"", size=(1 << 63) - 1),
    "a message of 17 MiB": frame(2, b"", size=17 << 20),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_ends_the_connection(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (router, port):
        status, reader, writer = await handshake(port, EXEC, HANDSHAKE)
        assert status == 101
        writer.write(BAD_FRAMES[name])
        async with asyncio.timeout(WITHIN):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        assert router.defects == []
    assert "Traceback" not in caplog.text


async def test_fragments_of_a_message_are_limited_together() -> None:
    async with serving() as (router, port):
        status, reader, writer = await handshake(port, EXEC, HANDSHAKE)
        assert status == 101
        piece = frame(0, b"x" * (1 << 20), fin=False)
        with contextlib.suppress(ConnectionError):
            writer.write(frame(2, b"\0", fin=False))
            async with asyncio.timeout(WITHIN):
                for _ in range(40):
                    writer.write(piece)
                    await writer.drain()
                await reader.read()
        writer.close()
        assert router.defects == []


async def test_a_flood_of_pings_is_answered_at_the_pace_of_the_reader() -> None:
    async with serving() as (router, port):
        status, reader, writer = await handshake(port, EXEC, HANDSHAKE)
        assert status == 101
        count = 20_000
        writer.write(frame(9, b"ping") * count)
        async with asyncio.timeout(WITHIN):
            await reader.readexactly(count * 6)
        writer.close()
        assert router.defects == []


async def test_protocols_that_a_path_does_not_have_are_refused() -> None:
    async with serving() as (router, port):
        for path, protocol in (
            (EXEC, "SPDY/3.1+portforward.k8s.io"),
            (FORWARD, "v5.channel.k8s.io"),
            (EXEC, "graphql"),
        ):
            status, _, writer = await handshake(port, path, {**HANDSHAKE, "Sec-WebSocket-Protocol": protocol})
            assert status == 403, (path, protocol)
            writer.close()
        assert router.defects == []


async def test_mutated_websocket_conversations_end_without_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    unexpected: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(str(context)))
    caplog.set_level(logging.WARNING)
    async with serving() as (router, port):
        for seed in range(rounds(150, 10_000)):
            choice = random.Random(seed)
            path = choice.choice([EXEC, FORWARD])
            protocol = choice.choice(PROTOCOLS[path])
            status, _, writer = await handshake(port, path, {**HANDSHAKE, "Sec-WebSocket-Protocol": protocol})
            assert status == 101, (path, protocol)
            with contextlib.suppress(ConnectionError):
                for _ in range(choice.randrange(1, 8)):
                    data = bytearray(
                        frame(choice.choice([0, 1, 2, 2, 2, 8, 9, 10]), choice.randbytes(choice.randrange(100)))
                    )
                    for _ in range(choice.randrange(3)):
                        data[choice.randrange(len(data))] = choice.randrange(256)
                    writer.write(bytes(data))
                await writer.drain()
            writer.close()
        assert router.defects == []
    assert unexpected == []
    assert "Traceback" not in caplog.text
