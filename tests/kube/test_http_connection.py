"""Parsing of responses, reuse of connections, invalid responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from torchyard.kube.http_connection import BadHttpResponse, ConnectionPool, HttpResponse, ResponseParser

FIXED_LENGTH = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{}12345"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
WITH_TRAILERS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nSum: 1\r\nOther: 2\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
RESPONSES = {
    "with Content-Length": (FIXED_LENGTH, 201, b"{}12345"),
    "chunked": (CHUNKED, 200, b"hello, world"),
    "with trailers": (WITH_TRAILERS, 200, b"ab"),
    "empty, after early hints": (EARLY_HINTS, 204, b""),
}


@pytest.mark.parametrize(("sent", "status", "body"), RESPONSES.values(), ids=RESPONSES)
def test_a_response_is_parsed_regardless_of_how_its_bytes_are_split(sent: bytes, status: int, body: bytes) -> None:
    for size in (1, 2, 3, 7, len(sent), 2 * len(sent)):
        parser, responses = ResponseParser(), list[HttpResponse]()
        data = sent * 2  # one after the other on the same connection
        for begin in range(0, len(data), size):
            response = parser.feed(data[begin : begin + size])
            while response is not None:
                responses.append(response)
                response = parser.feed(b"")
        assert [(response.status, response.body) for response in responses] == [(status, body)] * 2, size


def test_without_content_length_the_end_of_the_connection_ends_the_response() -> None:
    parser = ResponseParser()
    assert parser.feed(b"HTTP/1.1 200 OK\r\n\r\nall of ") is None
    assert parser.feed(b"it") is None
    response = parser.feed_eof()
    assert response is not None and response.body == b"all of it"


@pytest.mark.parametrize("sent", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 70_000])
def test_invalid_http_is_an_error(sent: bytes) -> None:
    with pytest.raises((BadHttpResponse, ValueError)):
        ResponseParser().feed(sent)


@asynccontextmanager
async def serving(*responses: bytes) -> AsyncIterator[tuple[ConnectionPool, list[int]]]:
    """A server that sends these responses on each connection and closes it after the last one."""
    connections = list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(connections)
        connections.append(0)
        for response in responses:
            if not await reader.readline():
                break
            while await reader.readline() not in (b"\r\n", b""):
                pass
            connections[index] += 1
            writer.write(response)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = ConnectionPool("127.0.0.1", port, tls=None, server_name="", connect_timeout=10)
    try:
        yield pool, connections
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0.05)


async def send(pool: ConnectionPool, *, idempotent: bool = True) -> HttpResponse:
    return await pool.send(b"GET / HTTP/1.1\r\n\r\n", idempotent=idempotent, seconds=60)


async def test_open_connections_are_reused_and_closed_ones_are_not() -> None:
    async with serving(FIXED_LENGTH, FIXED_LENGTH) as (pool, connections):
        for _ in range(4):
            assert (await send(pool)).status == 201
        assert connections == [2, 2]


async def test_concurrent_requests_use_separate_connections() -> None:
    async with serving(FIXED_LENGTH, FIXED_LENGTH, FIXED_LENGTH) as (pool, connections):
        await asyncio.gather(*(send(pool) for _ in range(5)))
        assert len(connections) == 5
        await asyncio.gather(*(send(pool) for _ in range(5)))
        assert connections == [2] * 5


async def test_connection_close_ends_the_reuse() -> None:
    last = FIXED_LENGTH.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
    async with serving(last, FIXED_LENGTH) as (pool, connections):
        await send(pool)
        await send(pool)
        assert len(connections) == 2


async def test_only_idempotent_requests_are_retried_without_a_response() -> None:
    async with serving(FIXED_LENGTH, b"") as (pool, connections):
        await send(pool)
        with pytest.raises(ConnectionError):
            await send(pool, idempotent=False)
        assert connections == [2]
        await send(pool)
        await send(pool)  # the second connection closes without a response, so the request is retried on a third
        assert len(connections) == 3


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with serving(b"", FIXED_LENGTH) as (pool, connections):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await send(pool)
        slow = asyncio.create_task(send(pool))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.shield(slow)
        slow.cancel()
        await asyncio.wait([slow])
        assert len(connections) == 2


async def test_a_request_without_a_response_in_time_fails_and_closes_its_connection() -> None:
    async with serving(FIXED_LENGTH) as (pool, connections):
        release = asyncio.Event()

        async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        quiet = ConnectionPool("127.0.0.1", port, tls=None, server_name="", connect_timeout=10)
        with pytest.raises(TimeoutError):
            await quiet.send(b"GET / HTTP/1.1\r\n\r\n", idempotent=True, seconds=0.05)
        release.set()
        quiet.close()
        server.close()
        await asyncio.sleep(0.05)
        assert (await send(pool)).status == 201
        assert connections == [1]
