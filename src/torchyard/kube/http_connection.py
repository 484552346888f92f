"""A pool of HTTP/1.1 keep-alive connections, for requests with short responses.

This costs a third of what a general HTTP client does. Streams and proxied requests use aiohttp instead.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

_MAX_HEADER_BYTES = 64 << 10
_END = b"\r\n\r\n"


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class BadHttpResponse(ConnectionError):
    """The response is not valid HTTP/1.1."""


class HttpConnection(asyncio.Protocol):
    """A connection, with at most one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._pending: asyncio.Future[HttpResponse] | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.is_open = cast(asyncio.Transport, transport), True  # uvloop has its own class

    def send(self, request: bytes) -> asyncio.Future[HttpResponse]:
        assert self._transport is not None
        self._pending = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._pending

    def data_received(self, data: bytes) -> None:
        try:
            response = self._parser.feed(data)
        except (ValueError, BadHttpResponse) as error:
            self._fail(BadHttpResponse(f"the response is not valid: {error}"))
            return
        if response is not None:
            self._deliver(response)

    def eof_received(self) -> None:
        if (response := self._parser.feed_eof()) is not None:
            self.is_open = False
            self._deliver(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the server closed the connection"))

    def close(self) -> None:
        """Close without the TLS shutdown, which would keep the event loop waiting for an answer of the server."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """Fail the request in flight: it takes too long."""
        self._fail(TimeoutError("no response in time"))

    def _deliver(self, response: HttpResponse) -> None:
        pending, self._pending = self._pending, None
        # A response without a request means that the connection is out of sync.
        if pending is None or response.headers.get("connection", "").lower() == "close":
            self.close()
        if pending is not None and not pending.done():
            pending.set_result(response)

    def _fail(self, error: Exception) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_exception(error)
        self.close()


class ResponseParser:
    """Parses a sequence of responses incrementally."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._status = 0  # of the response whose head has been parsed; 0: none
        self._headers: dict[str, str] = {}
        self._length: int | None = None  # Content-Length, if there is one
        self._chunks: list[bytes] | None = None  # of a chunked body

    def feed(self, data: bytes) -> HttpResponse | None:
        """Add received bytes; return the response once it is complete."""
        self._buffer += data
        if not self._status and not self._read_head():
            return None
        if self._chunks is not None:
            return self._read_chunks()
        if self._length is None or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return self._finish(body)

    def feed_eof(self) -> HttpResponse | None:
        """Return the response that the end of the connection completes."""
        if not self._status or self._length is not None or self._chunks is not None:
            return None
        body = bytes(self._buffer)
        self._buffer.clear()
        return self._finish(body)

    def _read_head(self) -> bool:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > _MAX_HEADER_BYTES:
                raise BadHttpResponse("the header is too long")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + len(_END)]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise BadHttpResponse(f"the status line is {first[:40]!r}")
        status = int(rest[:3])
        if status < 200:  # an interim response
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
        buffer, position = self._buffer, 0
        while (end := buffer.find(b"\r\n", position)) >= 0:
            size = int(buffer[position:end].split(b";")[0], 16)
            begin = end + 2
            if size == 0:
                # Trailers end with an empty line, as the header does.
                last = begin if buffer[begin : begin + 2] == b"\r\n" else buffer.find(_END, begin) + 2
                if last < begin or len(buffer) < last + 2:
                    break
                del buffer[: last + 2]
                return self._finish(b"".join(self._chunks))
            if len(buffer) < begin + size + 2:
                break
            self._chunks.append(bytes(buffer[begin : begin + size]))
            position = begin + size + 2
        del buffer[:position]
        return None

    def _finish(self, body: bytes) -> HttpResponse:
        response = HttpResponse(self._status, self._headers, body)
        self._status, self._length, self._chunks = 0, None, None
        return response


class ConnectionPool:
    """Idle connections to one server. The caller limits their number."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, server_name: str, connect_timeout: float
    ) -> None:
        self._host, self._port, self._tls, self._server_name = host, port, tls, server_name
        self._connect_timeout = connect_timeout
        self._idle: list[HttpConnection] = []
        self._is_closed = False

    async def send(self, request: bytes, *, idempotent: bool, seconds: float) -> HttpResponse:
        """Send a request. Raises OSError without a response, TimeoutError if it takes longer than `seconds`.

        `idempotent`: the request may reach the server twice.
        """
        while (connection := self._take_idle()) is not None:
            try:
                return await self._send_on(connection, request, seconds)
            except ConnectionError:
                if not idempotent:  # the server may close an idle connection just as it is reused
                    raise
        return await self._send_on(await self._open(), request, seconds)

    async def _send_on(self, connection: HttpConnection, request: bytes, seconds: float) -> HttpResponse:
        # A plain timer: `asyncio.timeout` takes several times as long.
        timer = asyncio.get_running_loop().call_later(seconds, connection.expire)
        try:
            response = await connection.send(request)
        except BaseException:
            connection.close()  # a late response would be taken for the response to the next request
            raise
        finally:
            timer.cancel()
        if self._is_closed:
            connection.close()
        elif connection.is_open:
            self._idle.append(connection)
        return response

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _open(self) -> HttpConnection:
        async with asyncio.timeout(self._connect_timeout):
            _, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection,
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=(self._server_name or self._host) if self._tls else None,
            )
        return connection
