"""One connection of the fast path: reads plain requests, passes them to the router and writes the responses in order.

Any other request (a chunked body, an upgrade, an old version, malformed HTTP) goes to aiohttp with all its bytes:
aiohttp knows the whole protocol, at several times the cost of a plain GET.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Protocol, cast

from torchyard.api.errors import StatusError
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.http.request_head import RequestHead, parse_request_head
from torchyard.apiserver.http.response_head import content_length_lines, format_response_head
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.routing.router import Router

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 1 << 16
# How much a client may send ahead while a request is being handled.
_MAX_AHEAD_BYTES = 1 << 16
# A body up to this size is copied behind its head, so that both leave in one write.
_SINGLE_WRITE_BYTES = 1 << 16


class ConnectionOwner(Protocol):
    """The server of the connections."""

    router: Router
    connections: set[ServerConnection]
    write_buffer: WriteBuffer

    async def fall_back(self, connection: ServerConnection) -> None: ...


class ServerConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None  # handles the current request
        self.idle_since = self._loop.time()
        self._certificate: bytes | None = None
        # Of a request whose body is incomplete: its head, and where the body starts in the buffer.
        self._head: tuple[RequestHead, int] | None = None
        self._is_streaming = False
        self._is_reading_paused = False  # the client sent too far ahead
        self._may_write: asyncio.Future[None] | None = None  # while the client reads slower than the server writes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        # The kernel detects clients that vanished without closing.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._owner.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connections.discard(self)
        self.resume_writing()
        if self._is_streaming and self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._may_write = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._may_write = None

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.task is None:
            self._start_request()
        elif len(self.buffer) > _MAX_AHEAD_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def shut_down(self) -> None:
        """Stop a stream; close the connection once the current request has its response."""
        if self.task is None:
            self._close()
        elif self._is_streaming:
            self.task.cancel()

    def _close(self) -> None:
        self._owner.write_buffer.flush()
        self.transport.close()

    def _start_request(self) -> None:
        """Handle the next request if it is complete."""
        if self._head is None:
            end = self.buffer.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(self.buffer) > MAX_HEAD_BYTES:
                    self._fall_back()
                return
            head = parse_request_head(bytes(self.buffer[:end]))
            if head is None:
                self._fall_back()
                return
            self._head = head, end
        head, start = self._head
        end = start + head.content_length
        if len(self.buffer) < end:
            return
        body = bytes(self.buffer[start:end])
        del self.buffer[:end]
        self._head = None
        self.task = self._loop.create_task(self._handle(head, body))

    def _fall_back(self) -> None:
        self.transport.pause_reading()
        self.task = self._loop.create_task(self._owner.fall_back(self))

    async def _handle(self, head: RequestHead, body: bytes) -> None:
        keep_alive = head.keep_alive
        try:
            response = await self._response(head, body)
            if isinstance(response.body, bytes):
                await self._write(head, response, response.body)
            else:
                await self._stream(response, response.body, keep_alive=keep_alive)
            if self._may_write is not None:
                await self._may_write
        except asyncio.CancelledError:  # the server stops, or the client of a stream is gone
            keep_alive = False
        except Exception:
            log.exception("response failed: method=%s target=%s", head.method, head.target)
            keep_alive = False
        self.task = None
        self.idle_since = self._loop.time()
        if not keep_alive:
            self._close()
        elif not self.transport.is_closing():
            if self._is_reading_paused:
                self._is_reading_paused = False
                self.transport.resume_reading()
            if self.buffer:
                self._start_request()

    async def _response(self, head: RequestHead, body: bytes) -> Response:
        router, headers = self._owner.router, head.headers
        path, _, query = head.target.partition("?")
        try:
            user = router.access_control.authenticate(headers, self._certificate)
        except StatusError as error:
            return error_response(error)
        return await router.handle(Request(head.method, path, Query(query), headers, body, user))

    async def _write(self, head: RequestHead, response: Response, body: bytes) -> None:
        lines = content_length_lines(response, len(body))
        if not head.keep_alive:
            lines = (*lines, "Connection: close")
        start = format_response_head(response, *lines)
        if head.method == "HEAD":
            body = b""
        if len(body) <= _SINGLE_WRITE_BYTES:
            self._owner.write_buffer.send(self.transport, start + body)
            return
        self._owner.write_buffer.flush()
        self.transport.write(start)
        # In chunks, each after the client has read the one before: TLS would hold a second copy of all that is written.
        view = memoryview(body)
        for at in range(0, len(body), _SINGLE_WRITE_BYTES):
            if self._may_write is not None:
                await self._may_write
            if self.transport.is_closing():
                return
            self.transport.write(view[at : at + _SINGLE_WRITE_BYTES])

    async def _stream(self, response: Response, body: AsyncGenerator[bytes, None], *, keep_alive: bool) -> None:
        """Write chunks as they come until the stream or the client ends."""
        self._is_streaming = True
        send, transport = self._owner.write_buffer.send, self.transport
        async with contextlib.aclosing(body) as chunks:
            lines = () if keep_alive else ("Connection: close",)
            send(transport, format_response_head(response, "Transfer-Encoding: chunked", *lines))
            async for chunk in chunks:
                if chunk:
                    send(transport, b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if self._may_write is not None:
                    await self._may_write
            send(transport, b"0\r\n\r\n")
        self._is_streaming = False
