"""Requests and answers over kept HTTP/1.1 connections: what an API server is asked most, at a third of a general
client's cost. Streams and proxies are not for this: aiohttp has them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

_HEAD_LIMIT = 64 << 10
_END = b"\r\n\r\n"


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class BadHttpResponse(ConnectionError):
    """What came is no HTTP/1.1."""


class HttpConnection(asyncio.Protocol):
    """One connection, on which one request at a time is under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseParser()
        self._answer: asyncio.Future[HttpResponse] | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.is_open = cast(asyncio.Transport, transport), True  # uvloop has a class of its own

    def send(self, request: bytes) -> asyncio.Future[HttpResponse]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        try:
            reply = self._reader.take(data)
        except (ValueError, BadHttpResponse) as error:
            self._end(BadHttpResponse(f"the answer cannot be read: {error}"))
            return
        if reply is not None:
            self._give(reply)

    def eof_received(self) -> None:
        if (reply := self._reader.ended()) is not None:
            self.is_open = False
            self._give(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("the server closed the connection"))

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without the farewells of TLS, for which nobody may be there to wait."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _give(self, reply: HttpResponse) -> None:
        answer, self._answer = self._answer, None
        # An answer that nobody asked for means that the two ends no longer agree.
        if answer is None or reply.headers.get("connection", "").lower() == "close":
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def _end(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.close()


class ResponseParser:
    """The bytes of answers, one after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._status = 0  # of the answer whose head has been read
        self._headers: dict[str, str] = {}
        self._length: int | None = None  # of its body, where that is known
        self._chunks: list[bytes] | None = None  # of its body, where it comes in pieces

    def take(self, data: bytes) -> HttpResponse | None:
        """The answer, once it is whole."""
        self._buffer += data
        if not self._status and not self._read_head():
            return None
        if self._chunks is not None:
            return self._read_chunks()
        if self._length is None or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return self._whole(body)

    def ended(self) -> HttpResponse | None:
        """The answer whose end is the connection's."""
        if not self._status or self._length is not None or self._chunks is not None:
            return None
        body = bytes(self._buffer)
        self._buffer.clear()
        return self._whole(body)

    def _read_head(self) -> bool:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise BadHttpResponse("its head has no end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + len(_END)]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise BadHttpResponse(f"it begins with {first[:40]!r}")
        status = int(rest[:3])
        if status < 200:  # on the way to the answer
            return self._read_head()
        self._status = status
        self._headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip()
        if "chunked" in self._headers.get("transfer-encoding", "").lower():
            self._chunks = []
        elif status in (204, 304):
            self._length = 0
        elif "content-length" in self._headers:
            self._length = int(self._headers["content-length"])
        return True

    def _read_chunks(self) -> HttpResponse | None:
        assert self._chunks is not None
        buffer, place = self._buffer, 0
        while (end := buffer.find(b"\r\n", place)) >= 0:
            size = int(buffer[place:end].split(b";")[0], 16)
            begin = end + 2
            if size == 0:
                # Trailers, if there are any, end with an empty line as the head does.
                last = begin if buffer[begin : begin + 2] == b"\r\n" else buffer.find(_END, begin) + 2
                if last < begin or len(buffer) < last + 2:
                    break
                del buffer[: last + 2]
                return self._whole(b"".join(self._chunks))
            if len(buffer) < begin + size + 2:
                break
            self._chunks.append(bytes(buffer[begin : begin + size]))
            place = begin + size + 2
        del buffer[:place]
        return None

    def _whole(self, body: bytes) -> HttpResponse:
        reply = HttpResponse(self._status, self._headers, body)
        self._status, self._length, self._chunks = 0, None, None
        return reply


class ConnectionPool:
    """Connections to one server, kept for the next request. How many there are, the caller bounds."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, server_name: str, seconds: float) -> None:
        self._host, self._port, self._tls, self._server_name = host, port, tls, server_name
        self._seconds = seconds
        self._idle: list[HttpConnection] = []
        self._is_closed = False

    async def ask(self, request: bytes, *, repeatable: bool) -> HttpResponse:
        """Raises OSError when there is no answer. `repeatable`: it may reach the server twice and mean the same."""
        while (wire := self._idle_one()) is not None:
            try:
                return await self._ask(wire, request)
            except ConnectionError:
                if not repeatable:  # a server may close what was idle just as it is used again
                    raise
        return await self._ask(await self._open(), request)

    async def _ask(self, wire: HttpConnection, request: bytes) -> HttpResponse:
        try:
            reply = await wire.send(request)
        except BaseException:
            wire.close()  # an answer may still come, and would be taken for that to the next request
            raise
        if self._is_closed:
            wire.close()
        elif wire.is_open:
            self._idle.append(wire)
        return reply

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().abort()

    def _idle_one(self) -> HttpConnection | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
        return None

    async def _open(self) -> HttpConnection:
        async with asyncio.timeout(self._seconds):
            _, made = await asyncio.get_running_loop().create_connection(
                HttpConnection,
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=(self._server_name or self._host) if self._tls else None,
            )
        return made
