"""One connection: plain requests are read, handed to the server and answered here, one after the other.

Anything else about HTTP (bodies in pieces, upgrades, old versions, what is malformed) goes to aiohttp with all its
bytes: it knows the whole protocol, and costs several times what a plain GET does.
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
from torchyard.apiserver.http.head import Head, answer_head, length_line, read_head
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.routing.router import Router

log = logging.getLogger(__name__)

LARGEST_HEAD = 1 << 16
# How much may be sent ahead while a request is being answered.
_AHEAD = 1 << 16
# A body up to this size is copied behind its head, so that both leave in one write.
_ONE_WRITE = 1 << 16


class Owner(Protocol):
    """Who keeps the connections."""

    server: Router
    connections: set[Connection]
    outbox: WriteBuffer

    async def hand_over(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None  # the request being answered
        self.idle_since = self._loop.time()
        self._certificate: bytes | None = None
        self._head: tuple[Head, int] | None = None  # of a request whose body is still coming, and where that begins
        self._is_streaming = False
        self._is_full = False  # more was sent ahead than is read
        self._may_write: asyncio.Future[None] | None = None  # while the client is slower than we

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        # A client that vanished without a word is found out by the kernel.
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
            self._begin()
        elif len(self.buffer) > _AHEAD and not self._is_full:
            self._is_full = True
            self.transport.pause_reading()

    def end(self) -> None:
        """Stop a stream, and close once the request under way is answered."""
        if self.task is None:
            self._close()
        elif self._is_streaming:
            self.task.cancel()

    def _close(self) -> None:
        self._owner.outbox.empty()
        self.transport.close()

    def _begin(self) -> None:
        """Answer the next request if all of it is here."""
        if self._head is None:
            end = self.buffer.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(self.buffer) > LARGEST_HEAD:
                    self._hand_over()
                return
            head = read_head(bytes(self.buffer[:end]))
            if head is None:
                self._hand_over()
                return
            self._head = head, end
        head, start = self._head
        end = start + head.fields.length
        if len(self.buffer) < end:
            return
        body = bytes(self.buffer[start:end])
        del self.buffer[:end]
        self._head = None
        self.task = self._loop.create_task(self._answer(head, body))

    def _hand_over(self) -> None:
        self.transport.pause_reading()
        self.task = self._loop.create_task(self._owner.hand_over(self))

    async def _answer(self, head: Head, body: bytes) -> None:
        stays = head.fields.stays
        try:
            response = await self._response(head, body)
            if isinstance(response.body, bytes):
                await self._write(head, response, response.body)
            else:
                await self._stream(response, response.body, stays=stays)
            if self._may_write is not None:
                await self._may_write
        except asyncio.CancelledError:  # the server stops, or the client of a stream is gone
            stays = False
        except Exception:
            log.exception("%s %s could not be answered", head.method, head.target)
            stays = False
        self.task = None
        self.idle_since = self._loop.time()
        if not stays:
            self._close()
        elif not self.transport.is_closing():
            if self._is_full:
                self._is_full = False
                self.transport.resume_reading()
            if self.buffer:
                self._begin()

    async def _response(self, head: Head, body: bytes) -> Response:
        server, headers = self._owner.server, head.fields.headers
        path, _, query = head.target.partition("?")
        try:
            user = server.access_control.authenticate(headers, self._certificate)
        except StatusError as error:
            return error_response(error)
        return await server.handle(Request(head.method, path, Query(query), headers, body, user))

    async def _write(self, head: Head, response: Response, body: bytes) -> None:
        lines = length_line(response, len(body))
        start = (
            answer_head(response, *lines) if head.fields.stays else answer_head(response, *lines, "Connection: close")
        )
        if head.method == "HEAD":
            body = b""
        if len(body) <= _ONE_WRITE:
            self._owner.outbox.send(self.transport, start + body)
            return
        self._owner.outbox.empty()
        self.transport.write(start)
        # In pieces, each when the client has taken the one before: TLS would hold a second copy of all that is written.
        view = memoryview(body)
        for at in range(0, len(body), _ONE_WRITE):
            if self._may_write is not None:
                await self._may_write
            if self.transport.is_closing():
                return
            self.transport.write(view[at : at + _ONE_WRITE])

    async def _stream(self, response: Response, body: AsyncGenerator[bytes, None], *, stays: bool) -> None:
        """Write pieces as they come until the stream or the client ends."""
        self._is_streaming = True
        send, transport = self._owner.outbox.send, self.transport
        async with contextlib.aclosing(body) as pieces:
            connection = () if stays else ("Connection: close",)
            send(transport, answer_head(response, "Transfer-Encoding: chunked", *connection))
            async for piece in pieces:
                if piece:
                    send(transport, b"%x\r\n%b\r\n" % (len(piece), piece))
                if self._may_write is not None:
                    await self._may_write
            send(transport, b"0\r\n\r\n")
        self._is_streaming = False
