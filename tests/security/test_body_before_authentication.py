"""A client is authenticated and authorized before its body is read, and bodies have limits and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import psutil
import pytest
from tests.apiserver.http.test_http_server import Echo, Peer
from tests.security.raw import connected, dial, head, is_closed, response, secure
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.apiserver.http.limits import HttpLimits
from torchyard.apiserver.http.server import HttpServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
JSON = "Content-Type: application/json"
MEGABYTE = 1 << 20
BODY_SIZE = 3 * MEGABYTE - 1000
USERS = "alice-token,alice,1\n"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    ours = Yard(tmp_path_factory.mktemp("bodies"), controllers="-*", users=USERS)
    with ours:
        yield ours


@pytest.fixture(scope="module")
def server(yard: Yard) -> Server:
    return yard.server()


@pytest.mark.parametrize(
    ("token", "status"), [("", 403), ("wrong", 401), ("alice-token", 403)], ids=["anonymous", "unknown", "alice"]
)
@pytest.mark.parametrize("framing", [f"Content-Length: {BODY_SIZE}", "Transfer-Encoding: chunked"])
def test_a_client_that_may_not_send_the_request_is_rejected_before_its_body(
    server: Server, token: str, status: int, framing: str
) -> None:
    with connected(server) as peer:
        peer.sendall(head("POST", CONFIG_MAPS, JSON, framing, token=token))
        assert response(peer)[0] == status
        assert is_closed(peer)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_bodies_of_anonymous_clients_take_no_memory(yard: Yard, server: Server, framing: str) -> None:
    assert yard.process is not None
    process = psutil.Process(yard.process.pid)
    before = process.memory_info().rss
    piece = b"x" * MEGABYTE
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            peer = stack.enter_context(connected(server))
            header = f"Content-Length: {BODY_SIZE}" if framing == "length" else "Transfer-Encoding: chunked"
            with contextlib.suppress(OSError):  # the server closes the connection
                peer.sendall(head("POST", CONFIG_MAPS, JSON, header))
                for _ in range(2):
                    peer.sendall(piece if framing == "length" else b"%x\r\n%b\r\n" % (len(piece), piece))
        grown = process.memory_info().rss - before
    # All bodies together are 80 MB.
    assert grown < 40 * MEGABYTE, f"{grown // MEGABYTE} MB more"


def test_a_rejected_client_that_is_still_sending_gets_the_response(server: Server) -> None:
    with connected(server) as peer:
        peer.sendall(head("POST", CONFIG_MAPS, JSON, f"Content-Length: {BODY_SIZE}"))
        peer.sendall(b"x" * 200_000)
        status, body = response(peer)
        assert (status, json.loads(body)["reason"]) == (403, "Forbidden")


def test_one_user_cannot_take_all_the_memory_for_bodies(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(server)) for _ in range(30)]
        statuses = []
        for peer in peers:
            peer.sendall(head("POST", CONFIG_MAPS, JSON, f"Content-Length: {BODY_SIZE}", token=server.token))
        for peer in peers:
            peer.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                statuses.append(response(peer)[0])
        assert set(statuses) == {429}
        assert 5 <= len(statuses) <= 15  # the first 64 MiB are accepted
        small = {"metadata": {"generateName": "small-"}}
        assert server.admin.post(CONFIG_MAPS, small).status == 201
    eventually(
        lambda: (
            server.admin.post(CONFIG_MAPS, {"metadata": {"name": "big"}, "data": {"a": "x" * MEGABYTE}}).status
            in (201, 409, 422)
        ),
        "a body after the others are gone",
    )


def test_expect_100_continue_is_answered_before_the_body(server: Server) -> None:
    body = json.dumps({"metadata": {"generateName": "a-"}}).encode()
    with connected(server) as peer:
        peer.sendall(
            head("POST", CONFIG_MAPS, JSON, f"Content-Length: {len(body)}", "Expect: 100-continue", token=server.token)
        )
        assert peer.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(body)
        assert response(peer)[0] == 201


def test_expect_100_continue_of_an_anonymous_client_gets_the_rejection(server: Server) -> None:
    with connected(server) as peer:
        peer.sendall(head("POST", CONFIG_MAPS, JSON, "Content-Length: 100", "Expect: 100-continue"))
        assert response(peer)[0] == 403


def test_a_body_of_tiny_chunks_is_read(server: Server) -> None:
    body = json.dumps({"metadata": {"generateName": "a-"}, "data": {"pad": "x" * 20_000}}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with secure(server, dial(server)) as peer:
        peer.sendall(head("POST", CONFIG_MAPS, JSON, "Transfer-Encoding: chunked", token=server.token) + chunks)
        assert response(peer)[0] == 201
        peer.sendall(head("GET", "/version", token=server.token))
        assert response(peer)[0] == 200


@asynccontextmanager
async def serving(limits: HttpLimits) -> AsyncGenerator[tuple[Echo, HttpServer, Peer]]:
    echo = Echo()
    server = HttpServer(echo, limits)  # type: ignore[arg-type]
    port = await server.start("127.0.0.1", 0, None)
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield echo, server, peer
    finally:
        peer.close()
        await server.stop()


SHORT = HttpLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2, response_seconds=0.2)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /a HT",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX-A: b",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nothing", "request line", "header", "body", "chunk", "idle"],
)
async def test_a_connection_that_stalls_is_closed(sent: bytes) -> None:
    async with serving(SHORT) as (_, server, peer):
        await peer.send(sent)
        with contextlib.suppress(ConnectionResetError):
            await peer.rest()
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0.01)
        assert server.body_bytes == 0
        assert server.head_bytes == 0


async def test_a_drip_of_header_bytes_does_not_extend_the_deadline() -> None:
    async with serving(SHORT) as (echo, server, peer):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            async with asyncio.timeout(30):
                while server.connections or not echo.requests:
                    await peer.send(b"X")
                    await asyncio.sleep(0.02)
                    if not server.connections:
                        break
        assert echo.requests == 0
        assert not server.connections


async def test_a_drip_of_body_bytes_does_not_extend_the_deadline() -> None:
    async with serving(SHORT) as (echo, server, peer):
        await peer.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            async with asyncio.timeout(30):
                while not server.connections:
                    await asyncio.sleep(0.01)
                while server.connections:
                    await peer.send(b"X")
                    await asyncio.sleep(0.02)
        assert echo.requests == 0
        assert server.body_bytes == 0


async def test_long_heads_are_limited_in_all() -> None:
    limits = HttpLimits(total_head_bytes=100_000)
    async with serving(limits) as (_, server, peer):
        await peer.send(b"GET /a HTTP/1.1\r\nX-A: " + b"b" * 120_000)
        assert (await peer.response(bodyless=True))[0] == 431
        assert server.head_bytes == 0
