"""The HTTP server: plain requests take the fast path of the parser, all others the slow one, with the same results."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.api import errors
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.http.limits import BODY_LIMIT, HttpLimits
from torchyard.apiserver.http.request_head import parse_head, parse_plain_head
from torchyard.apiserver.http.server import HttpServer
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.router import Router
from torchyard.apiserver.routing.stored_get import StoredObject

WITHIN = 30.0


class Echo:
    """A router that echoes requests, except for stored objects; `/stream` never ends, `/slow` waits to be released.

    `/pod` is a request that a pod does not answer.
    """

    def __init__(self) -> None:
        self.access_control = SimpleNamespace(authenticate=self._authenticate, static_user=self._static_user)
        self.user = User("alice")
        self.aggregation = None
        self.stored: dict[str, bytes] = {}
        self.stored_requests = 0
        self.released = asyncio.Event()
        self.requests = 0
        self.streams_ended = 0

    def _authenticate(self, headers: Mapping[str, str], certificate: bytes | None) -> User:
        if headers.get("Authorization") == "Bearer wrong":
            raise errors.unauthorized()
        return self.user

    def authenticate(self, _method: str, _path: str, headers: Mapping[str, str], certificate: bytes | None) -> User:
        return self._authenticate(headers, certificate)

    def _static_user(self, headers: Mapping[str, str], certificate: bytes | None) -> User | None:
        return self.user if headers.get("Authorization") == "Bearer static" else None

    def get_stored(self, path: str, user: User, accept: str) -> StoredObject | None:
        data = self.stored.get(path)
        return None if data is None else StoredObject(data, ("get", "", "v1", "things", "", "200"))

    def count_stored(self, stored: StoredObject, seconds: float) -> None:
        self.stored_requests += 1

    def authorize(self, method: str, path: str, query: Query, user: User, *, size: int = 0) -> None:
        if path == "/forbidden":
            raise errors.forbidden("things", "", "", "no")

    async def handle(self, request: Request) -> Response:
        self.requests += 1
        if request.path == "/stream":
            return Response(body=self._stream(), content_type="text/plain")
        if request.path == "/slow":
            await self.released.wait()
        if request.path == "/pod/proxy":
            assert request.received is not None
            request.received.ends_with_client = True
            try:
                await asyncio.Event().wait()
            finally:
                self.streams_ended += 1
        if request.path == "/none":
            return Response(status=204)
        text = f"{request.method} {request.path}?{request.query.get('q')} {len(request.body)}"
        return Response(body=text.encode(), content_type="text/plain", warnings=['a "word"'])

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            yield b""
            yield b"second"
            await asyncio.Event().wait()
        finally:
            self.streams_ended += 1


class Peer:
    """A client that sends and receives bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def response(self, *, bodyless: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), WITHIN)).decode()
        line, *fields = head.strip().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        size = 0 if bodyless else int(headers.get("Content-Length", 0))
        return int(line.split()[1]), headers, await asyncio.wait_for(self._reader.readexactly(size), WITHIN)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), WITHIN)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self._reader.read(), WITHIN)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Echo, HttpServer, int]]:
    echo = Echo()
    server = HttpServer(cast(Router, echo))
    port = await server.start("127.0.0.1", 0, None)
    try:
        yield echo, server, port
    finally:
        await server.stop()


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[Echo, HttpServer, Peer]]:
    async with serving() as (echo, server, port):
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield echo, server, peer
        finally:
            peer.close()


def _request(line: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([line, "Host: x", *headers, "", ""]).encode() + body


PLAIN = [
    pytest.param(_request("GET /a?q=1 HTTP/1.1"), b"GET /a?1 0", id="get"),
    pytest.param(_request("POST /a HTTP/1.1", "content-length: 5", body=b"hello"), b"POST /a? 5", id="body"),
    pytest.param(_request("PUT /a HTTP/1.1", "Connection:  Keep-Alive\t"), b"PUT /a? 0", id="keep-alive"),
]
NOT_PLAIN = [
    pytest.param(
        _request("POST /a HTTP/1.1", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
        b"POST /a? 5",
        id="chunked",
    ),
    pytest.param(_request("GET /a HTTP/1.1", "Upgrade: h2c", "Connection: Upgrade"), b"GET /a? 0", id="upgrade"),
    pytest.param(_request("GET /a HTTP/1.0", "Connection: keep-alive"), b"GET /a? 0", id="old version"),
    pytest.param(_request("OPTIONS /a HTTP/1.1"), b"OPTIONS /a? 0", id="other method"),
]


@pytest.mark.parametrize(("request_bytes", "body"), [*PLAIN, *NOT_PLAIN])
async def test_every_request_gets_a_response_and_the_connection_stays_open(request_bytes: bytes, body: bytes) -> None:
    async with connected() as (_, _, peer):
        for _ in range(2):
            await peer.send(request_bytes)
            status, headers, got = await peer.response()
            assert (status, got) == (200, body)
            assert headers["Warning"] == '299 - "a \\"word\\""'
        await peer.send(_request("GET /last HTTP/1.1"))
        assert (await peer.response())[2] == b"GET /last? 0"


@pytest.mark.parametrize("request_bytes", [case.values[0] for case in NOT_PLAIN])
def test_only_plain_requests_take_the_fast_path(request_bytes: Any) -> None:
    head = request_bytes[: request_bytes.index(b"\r\n\r\n") + 4]
    assert parse_plain_head(head) is None
    assert parse_head(head).method


@pytest.mark.parametrize(
    "head",
    [
        "GET  /a HTTP/1.1\r\n\r\n",
        "GET a HTTP/1.1\r\n\r\n",
        "GET /a\x7f HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nName : x\r\n\r\n",
        "GET /a HTTP/1.1\r\nName: x\r\n folded\r\n\r\n",
        "GET /a HTTP/1.1\r\nName: x\ny\r\n\r\n",
        "GET /a HTTP/1.1\r\nName: \0\r\n\r\n",
        "GET /a HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: ٣\r\n\r\n",
        f"POST /a HTTP/1.1\r\nContent-Length: {BODY_LIMIT + 1}\r\n\r\n",
        "GET /a HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
    ],
)
def test_a_head_that_is_not_plain_is_left_to_the_slow_parser(head: str) -> None:
    assert parse_plain_head(head.encode()) is None


@pytest.mark.parametrize("length", ["Content-Length: 5", "content-length: 5", "Content-Length:  5 "])
def test_the_length_of_a_body_is_read_in_every_spelling(length: str) -> None:
    for headers in ([length], ["A: b", length], [length, "A: b"]):
        head = parse_plain_head("\r\n".join(["POST /a HTTP/1.1", "Host: x", *headers, "", ""]).encode())
        assert head is not None
        assert head.content_length == 5
        assert head.headers.get("A") == ("b" if "A: b" in headers else None)


async def test_a_request_may_arrive_byte_by_byte_and_several_may_arrive_at_once() -> None:
    async with connected() as (_, _, peer):
        for byte in _request("POST /slowly HTTP/1.1", "Content-Length: 3", body=b"abc"):
            await peer.send(bytes([byte]))
        assert (await peer.response())[2] == b"POST /slowly? 3"
        post = _request("POST /a HTTP/1.1", "Content-Length: 1", body=b"x")
        await peer.send(post + _request("GET /b HTTP/1.1") + post)
        assert [(await peer.response())[2] for _ in range(3)] == [b"POST /a? 1", b"GET /b? 0", b"POST /a? 1"]


async def test_pipelined_requests_are_handled_in_order_and_none_is_lost() -> None:
    async with connected() as (echo, _, peer):
        await peer.send(_request("GET /slow HTTP/1.1"))
        many = 3000
        sending = asyncio.ensure_future(peer.send(_request("GET /a HTTP/1.1") * many))
        while echo.requests == 0:
            await asyncio.sleep(0.01)
        echo.released.set()
        assert (await peer.response())[2] == b"GET /slow? 0"
        for _ in range(many):
            assert (await peer.response())[0] == 200
        await sending


STATIC = "Authorization: Bearer static"


async def test_a_stored_object_is_sent_at_once_to_a_user_that_the_connection_knows() -> None:
    async with connected() as (echo, _, peer):
        echo.stored["/a"] = b'{"stored": true}'
        for number in range(3):
            await peer.send(_request("GET /a HTTP/1.1", STATIC))
            status, headers, body = await peer.response()
            assert (status, echo.requests, echo.stored_requests) == (200, 1, number)  # the first one authenticates
            assert "Connection" not in headers
        assert (headers["Content-Type"], headers["Content-Length"], body) == (
            *("application/json", "17"),
            b'{"stored": true}\n',
        )


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(_request("GET /a?x=1 HTTP/1.1", STATIC), id="query"),
        pytest.param(_request("HEAD /a HTTP/1.1", STATIC), id="method"),
        pytest.param(_request("GET /a HTTP/1.0", STATIC), id="old version"),
        pytest.param(_request("GET /a HTTP/1.1", STATIC, "Connection: close"), id="close"),
        pytest.param(_request("GET /a HTTP/1.1", STATIC, "Content-Length: 1", body=b"x"), id="body"),
        pytest.param(_request("GET /a HTTP/1.1", "Authorization: Bearer other"), id="credentials"),
        pytest.param(_request("GET /b HTTP/1.1", STATIC), id="not stored"),
        pytest.param(_request("GET /a HTTP/1.1", STATIC, "User-Agent: curl/8.0"), id="read by people"),
    ],
)
async def test_all_other_requests_go_to_the_router(request_bytes: bytes) -> None:
    async with connected() as (echo, _, peer):
        echo.stored["/a"] = b'{"stored": true}'
        await peer.send(_request("GET /first HTTP/1.1", STATIC))
        await peer.response()
        await peer.send(request_bytes)
        assert (await peer.response(bodyless=request_bytes.startswith(b"HEAD")))[0] == 200
        assert (echo.requests, echo.stored_requests) == (2, 0)


async def test_stored_objects_are_sent_in_the_order_of_their_requests() -> None:
    async with connected() as (echo, _, peer):
        echo.stored |= {f"/{number}": b"%d" % number for number in range(100)}
        await peer.send(b"".join(_request(f"GET /{number} HTTP/1.1", STATIC) for number in range(100)))
        bodies = [(await peer.response())[2].decode() for _ in range(100)]
        # By the router, which echoes the path, while another request is in the buffer.
        assert [body.removeprefix("GET /").removesuffix("? 0").strip() for body in bodies] == list(map(str, range(100)))
        assert echo.requests + echo.stored_requests == 100


async def test_a_large_stored_object_is_written_piece_by_piece() -> None:
    async with connected() as (echo, _, peer):
        echo.stored["/a"] = b"x" * ((1 << 16) + 1)
        for _ in range(2):
            await peer.send(_request("GET /a HTTP/1.1", STATIC))
            assert (await peer.response())[2] == b"GET /a? 0"  # by the router, which has no such object here


async def test_responses_without_body_and_responses_that_close_the_connection() -> None:
    async with connected() as (_, _, peer):
        await peer.send(_request("GET /none HTTP/1.1"))
        status, headers, _ = await peer.response()
        assert status == 204
        assert "Content-Length" not in headers
        await peer.send(_request("HEAD /a HTTP/1.1"))
        _, headers, _ = await peer.response(bodyless=True)
        assert headers["Content-Length"] == "10"
        await peer.send(_request("GET /a HTTP/1.1", "Connection: close"))
        _, headers, body = await peer.response()
        assert (headers["Connection"], body) == ("close", b"GET /a? 0")
        assert await peer.rest() == b""


async def test_unknown_credentials_are_rejected() -> None:
    async with connected() as (echo, _, peer):
        await peer.send(_request("GET /a HTTP/1.1", "Authorization: Bearer wrong"))
        assert (await peer.response())[0] == 401
        assert echo.requests == 0


@pytest.mark.parametrize("bad", [b"\x16\x03\x01 hello\r\n\r\n", b"GET /a HTTP/1.1\r\nbad header\r\n\r\n"])
async def test_malformed_http_gets_400(bad: bytes) -> None:
    async with connected() as (_, _, peer):
        await peer.send(bad)
        assert (await peer.response())[0] == 400


async def test_a_body_that_is_too_large_is_rejected_before_it_is_read() -> None:
    async with connected() as (echo, _, peer):
        await peer.send(_request("POST /a HTTP/1.1", f"Content-Length: {BODY_LIMIT + 1}", body=b"{"))
        assert (await peer.response())[0] == 413
        assert echo.requests == 0


async def test_a_stream_is_sent_in_chunks_and_ends_with_its_client() -> None:
    async with connected() as (echo, server, peer):
        await peer.send(_request("GET /stream HTTP/1.1"))
        _, headers, _ = await peer.response()
        assert headers["Transfer-Encoding"] == "chunked"
        assert await peer.until(b"second\r\n") == b"5\r\nfirst\r\n6\r\nsecond\r\n"
        peer.close()
        async with asyncio.timeout(WITHIN):
            while not echo.streams_ended or server.connections:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("headers", [(), ("Upgrade: websocket", "Connection: Upgrade")])
async def test_a_request_that_waits_for_a_pod_ends_with_its_client(headers: tuple[str, ...]) -> None:
    async with connected() as (echo, server, peer):
        await peer.send(_request("GET /pod/proxy HTTP/1.1", *headers))
        async with asyncio.timeout(WITHIN):
            while not echo.requests:
                await asyncio.sleep(0.01)
            peer.close()
            while not echo.streams_ended or server.connections:
                await asyncio.sleep(0.01)


async def test_stopping_ends_streams_and_lets_current_requests_finish() -> None:
    async with serving() as (echo, server, port):
        streaming, asking = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        await streaming.send(_request("GET /stream HTTP/1.1"))
        await streaming.until(b"second\r\n")
        await asking.send(_request("GET /slow HTTP/1.1"))
        while echo.requests < 2:
            await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        echo.released.set()
        assert (await asking.response())[2] == b"GET /slow? 0"
        await stopping
        assert echo.streams_ended == 1
        assert await asking.rest() == b""
        asking.close()
        streaming.close()


async def test_a_connection_is_dropped_when_aiohttp_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("torchyard.apiserver.http.server.importlib.import_module", broken)
    async with connected() as (echo, _, peer):
        await peer.send(_request("GET /pods/a/exec HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"))
        with contextlib.suppress(ConnectionResetError):
            assert await peer.rest() == b""
        assert echo.requests == 0


async def test_deadlines_hold_after_a_check_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = HttpLimits(head_seconds=0.05)
    server = HttpServer(cast(Router, Echo()), limits)
    raised = asyncio.Event()
    sweep = server._sweep

    def raises_at_first(now: float) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyError("missing")
        sweep(now)

    monkeypatch.setattr(server, "_sweep", raises_at_first)
    port = await server.start("127.0.0.1", 0, None)
    try:
        await asyncio.wait_for(raised.wait(), WITHIN)
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await peer.send(b"GET /a HTTP/1.1\r\n")  # a head that does not end
        with contextlib.suppress(ConnectionResetError):
            assert await peer.rest() == b""
        peer.close()
    finally:
        await server.stop()


async def test_an_upgrade_works_after_its_modules_could_not_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    load, loads = importlib.import_module, 0

    def fails_at_first(name: str) -> ModuleType:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return load(name)

    monkeypatch.setattr(importlib, "import_module", fails_at_first)
    async with serving() as (_, _, port):
        for answer in (b"", b"HTTP/1.1 "):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
            await peer.send(_request("GET /apis/a HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade, close"))
            response = b""
            with contextlib.suppress(ConnectionResetError):
                response = await peer.rest()
            assert response[:9] == answer
            peer.close()
    assert loads == 2
