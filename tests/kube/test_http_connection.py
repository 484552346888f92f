"""Answers are read however they come in, connections used again, and what is no answer is said to be none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from torchyard.kube.http_connection import BadHttpResponse, ConnectionPool, HttpResponse, ResponseParser

SOLID = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{}12345"
PIECES = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
TRAILED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nSum: 1\r\nOther: 2\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
ANSWERS = {
    "with a length": (SOLID, 201, b"{}12345"),
    "in pieces": (PIECES, 200, b"hello, world"),
    "with trailers": (TRAILED, 200, b"ab"),
    "after a hint, and empty": (EARLY, 204, b""),
}


@pytest.mark.parametrize(("sent", "status", "body"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_same_however_its_bytes_arrive(sent: bytes, status: int, body: bytes) -> None:
    for size in (1, 2, 3, 7, len(sent), 2 * len(sent)):
        reader, found = ResponseParser(), list[HttpResponse]()
        data = sent * 2  # one after the other on the same connection
        for begin in range(0, len(data), size):
            reply = reader.take(data[begin : begin + size])
            while reply is not None:
                found.append(reply)
                reply = reader.take(b"")
        assert [(one.status, one.body) for one in found] == [(status, body)] * 2, size


def test_without_a_length_the_connections_end_is_the_answers() -> None:
    reader = ResponseParser()
    assert reader.take(b"HTTP/1.1 200 OK\r\n\r\nall of ") is None
    assert reader.take(b"it") is None
    reply = reader.ended()
    assert reply is not None and reply.body == b"all of it"


@pytest.mark.parametrize("sent", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 70_000])
def test_what_is_no_answer_is_said_to_be_none(sent: bytes) -> None:
    with pytest.raises((BadHttpResponse, ValueError)):
        ResponseParser().take(sent)


@asynccontextmanager
async def served(*answers: bytes) -> AsyncIterator[tuple[ConnectionPool, list[int]]]:
    """A server that gives one answer to each request of a connection and closes it after the last."""
    connections = list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(connections)
        connections.append(0)
        for answer in answers:
            if not await reader.readline():
                break
            while await reader.readline() not in (b"\r\n", b""):
                pass
            connections[mine] += 1
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wires = ConnectionPool("127.0.0.1", port, tls=None, server_name="", seconds=10)
    try:
        yield wires, connections
    finally:
        wires.close()
        server.close()
        await asyncio.sleep(0.05)


async def ask(wires: ConnectionPool, *, repeatable: bool = True) -> HttpResponse:
    return await wires.ask(b"GET / HTTP/1.1\r\n\r\n", repeatable=repeatable)


async def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    async with served(SOLID, SOLID) as (wires, connections):
        for _ in range(4):
            assert (await ask(wires)).status == 201
        assert connections == [2, 2]


async def test_requests_at_once_take_a_connection_each() -> None:
    async with served(SOLID, SOLID, SOLID) as (wires, connections):
        await asyncio.gather(*(ask(wires) for _ in range(5)))
        assert len(connections) == 5
        await asyncio.gather(*(ask(wires) for _ in range(5)))
        assert connections == [2] * 5


async def test_a_server_that_wishes_to_close_is_left_alone() -> None:
    last = SOLID.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
    async with served(last, SOLID) as (wires, connections):
        await ask(wires)
        await ask(wires)
        assert len(connections) == 2


async def test_no_answer_is_an_error_and_is_not_asked_for_twice_unless_that_means_the_same() -> None:
    async with served(SOLID, b"") as (wires, connections):
        await ask(wires)
        with pytest.raises(ConnectionError):
            await ask(wires, repeatable=False)
        assert connections == [2]
        await ask(wires)
        await ask(wires)  # the second is closed without an answer, and asked for on a third
        assert len(connections) == 3


async def test_a_request_that_is_given_up_takes_its_connection_with_it() -> None:
    async with served(b"", SOLID) as (wires, connections):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(wires)
        slow = asyncio.create_task(ask(wires))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.shield(slow)
        slow.cancel()
        await asyncio.wait([slow])
        assert len(connections) == 2
