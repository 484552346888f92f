"""One connection: reads requests, passes them to the router and writes the responses in order.

A user is authenticated and authorized before the body is read, unless the body came together with the head. Only
requests that upgrade the connection, for exec, attach and port-forward, go to aiohttp, with all their bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncGenerator
from math import inf
from typing import Protocol, cast

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.authentication import ANONYMOUS_NAME, MASTERS, User
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.http.body_reader import BodyReader
from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.fair_queue import ConnectionShare, FairQueue, Flow, QueueFull
from torchyard.apiserver.http.limits import BODY_LIMIT, HttpLimits
from torchyard.apiserver.http.request_head import (
    CHUNKED,
    HEAD_TOO_LARGE,
    MalformedRequest,
    RequestHead,
    find_head_end,
    parse_head,
    parse_plain_head,
)
from torchyard.apiserver.http.response_head import content_length_lines, format_response_head
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.request.route import parse
from torchyard.apiserver.routing.router import Router

log = logging.getLogger(__name__)

# How much a client may send ahead while a request is being handled.
_MAX_AHEAD_BYTES = 1 << 16
# A body up to this size is copied behind its head, so that both leave in one write.
_SINGLE_WRITE_BYTES = 1 << 16
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UPGRADED_SUBRESOURCES = ("/exec", "/attach", "/portforward")
_PROBES = ("/healthz", "/livez", "/readyz")
# As kube-apiserver, which does not use a Status here.
TOO_MANY_REQUESTS = Response(
    429,
    b"Too many requests, please try again later.\n",
    "text/plain; charset=utf-8",
    headers={"Retry-After": "1", "X-Content-Type-Options": "nosniff"},
)


class ConnectionOwner(Protocol):
    """The server of the connections."""

    router: Router
    limits: HttpLimits
    connections: set[ServerConnection]
    table: ConnectionTable
    queue: FairQueue
    write_buffer: WriteBuffer
    head_bytes: int  # of long heads that are incomplete
    body_bytes: int  # of bodies that are being read

    async def upgrade(self, connection: ServerConnection) -> None: ...

    def abort_stalled_responses(self, flow: Flow) -> None: ...


class ServerConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner, address: str) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.address = address
        self.user_name = ""
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None  # handles the current request
        self.idle_since = time.monotonic()
        self.deadline = self.idle_since + owner.limits.head_seconds
        self._certificate: bytes | None = None
        self._searched = 0  # how much of the buffer has no end of a head
        self._counted_head = 0
        self._body: BodyReader | None = None  # of a request whose body is incomplete
        self._last_method = ""
        self._flow: Flow | None = None
        self._share = ConnectionShare()
        self._is_waiting = False  # for its turn
        self._is_streaming = False
        self._is_lingering = False  # the client may read the last response; nothing it sends counts
        self._is_reading_paused = False  # the client sent too far ahead
        self._may_write: asyncio.Future[None] | None = None  # while the client reads slower than the server writes
        self._stalled_since = inf
        self.response_bytes = 0  # of a large response that is being written

    @property
    def is_idle(self) -> bool:
        return self.task is None and self._body is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        # The kernel detects clients that vanished without closing.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._owner.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget()
        self.resume_writing()
        if (self._is_streaming or self._is_waiting) and self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """This object no longer reads the connection."""
        self._owner.connections.discard(self)
        self._owner.table.remove(self)
        self._count_head(0)
        self._end_body()
        if self._flow is not None:
            self._flow.connections -= 1
            self._flow = None

    def pause_writing(self) -> None:
        self._may_write = self._loop.create_future()
        self._stalled_since = time.monotonic()

    def resume_writing(self) -> None:
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._may_write = None
        self._stalled_since = inf

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self.buffer += data
        if self.task is None:
            self._advance()
        elif len(self.buffer) > _MAX_AHEAD_BYTES and not self._is_reading_paused:
            self._pause_reading()

    def shut_down(self) -> None:
        """Stop a stream; close the connection once the current request has its response."""
        if self.task is None:
            self._close()
        elif self._is_streaming or self._is_waiting:
            self.task.cancel()

    def evict(self) -> None:
        self.transport.abort()

    def expire(self) -> None:
        """The deadline is over: of the head, of the body, or for reading the response. As Go, without a response."""
        if self.is_idle and not self.buffer:
            self.transport.close()
        else:
            self.transport.abort()

    def stalled_response_since(self, flow: Flow) -> float:
        """Since when the client has not read a response of this user; infinity if it reads, or follows a stream."""
        return inf if self._is_streaming or self._flow is not flow else self._stalled_since

    def _close(self) -> None:
        self._owner.write_buffer.flush()
        self.transport.close()

    def _pause_reading(self) -> None:
        self._is_reading_paused = True
        self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = False
            self.transport.resume_reading()

    # Reading a request

    def _advance(self) -> None:
        """Go on with the request that is being read, and start it once it is complete."""
        if self._body is not None:
            self._read_body(self._body)
            return
        buffer = self.buffer
        end = buffer.find(b"\r\n\r\n", self._searched) + 4
        head = parse_plain_head(bytes(buffer[:end])) if end >= 4 else None
        if head is None:
            parsed = self._parse_special_head()
            if parsed is None:
                return
            head, end = parsed
        self._searched = 0
        if self._counted_head:
            self._count_head(0)
        size = head.content_length
        if 0 <= size <= len(buffer) - end and size <= BODY_LIMIT:
            body = bytes(buffer[end : end + size]) if size else b""
            del buffer[: end + size]
            self._start(head, body, None)
        else:
            del buffer[:end]
            self._begin_body(head)

    def _parse_special_head(self) -> tuple[RequestHead, int] | None:
        """The head of a request that is not plain; None if it is incomplete, rejected, or upgrades the connection."""
        buffer = self.buffer
        if self._last_method == "POST":  # as Go, for old clients that send a line break after the body
            strays = len(buffer[:4]) - len(buffer[:4].lstrip(b"\r\n"))
            del buffer[:strays]
        end = find_head_end(buffer, self._searched)
        if end < 0:
            self._await_head()
            return None
        try:
            if end > self._owner.limits.head_bytes:
                raise HEAD_TOO_LARGE
            head = parse_head(bytes(buffer[:end]))
        except MalformedRequest as malformed:
            self._reject_malformed(malformed)
            return None
        if "Upgrade" in head.headers and head.content_length == 0 and _may_upgrade(head.target):
            self.transport.pause_reading()
            self.task = self._loop.create_task(self._owner.upgrade(self))
            return None
        return head, end

    def _await_head(self) -> None:
        """The head is incomplete."""
        limits, size = self._owner.limits, len(self.buffer)
        if not self._searched:
            self.deadline = time.monotonic() + limits.head_seconds
        self._searched = max(0, size - 3)
        self._count_head(size)
        if size > limits.head_bytes or self._owner.head_bytes > limits.total_head_bytes:
            self._reject_malformed(HEAD_TOO_LARGE)

    def _count_head(self, size: int) -> None:
        counted = size if size > self._owner.limits.counted_head_bytes else 0
        if counted != self._counted_head:
            self._owner.head_bytes += counted - self._counted_head
            self._counted_head = counted

    def _begin_body(self, head: RequestHead) -> None:
        """Read the rest of the body, if the user may send this request at all."""
        limits = self._owner.limits
        try:
            user = self._owner.router.access_control.authenticate(head.headers, self._certificate)
            flow = self._use_flow(user)
            path, _, query = head.target.partition("?")
            self._owner.router.authorize(head.method, path, Query(query), user)
            if head.content_length > BODY_LIMIT:
                raise errors.too_large(BODY_LIMIT)
            # Of a chunked body the size is unknown until it is complete.
            size = BODY_LIMIT if head.content_length == CHUNKED else head.content_length
            is_over = flow.body_bytes + size > limits.user_body_bytes
            if is_over or self._owner.body_bytes + size > limits.total_body_bytes:
                raise self._owner.queue.reject("body-bytes")
        except StatusError as error:
            self._reject(head, error_response(error))
            return
        except QueueFull:
            self._reject(head, TOO_MANY_REQUESTS)
            return
        self._body = BodyReader(head, user, size)
        flow.body_bytes += size
        self._owner.body_bytes += size
        self.deadline = time.monotonic() + limits.body_seconds
        if head.expects_continue and not self.buffer:
            self._owner.write_buffer.send(self.transport, _CONTINUE)
        self._read_body(self._body)

    def _read_body(self, body: BodyReader) -> None:
        try:
            is_unfinished = body.feed(self.buffer)
        except StatusError as error:
            self._end_body()
            self._reject(body.head, error_response(error))
            return
        if body.is_complete:
            self._end_body()
            self._start(body.head, body.content(), body.user)
        elif is_unfinished:  # chunks remain in the buffer
            if not self._is_reading_paused:
                self._pause_reading()
            self._loop.call_soon(self._continue_body, body)
        else:
            self._resume_reading()

    def _continue_body(self, body: BodyReader) -> None:
        if self._body is body and not self.transport.is_closing():
            self._read_body(body)

    def _end_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            self._owner.body_bytes -= body.reserved
            if self._flow is not None:
                self._flow.body_bytes -= body.reserved

    def _start(self, head: RequestHead, body: bytes, user: User | None) -> None:
        self._last_method = head.method
        self.deadline = inf
        self.task = self._loop.create_task(self._handle(head, body, user))

    def _reject_malformed(self, malformed: MalformedRequest) -> None:
        log.info("malformed request: address=%s status=%r", self.address, malformed.status)
        self._owner.write_buffer.send(self.transport, malformed.response())
        self._linger()

    def _reject(self, head: RequestHead, response: Response) -> None:
        """Respond without reading the body, and close the connection."""
        assert isinstance(response.body, bytes)
        lines = (*content_length_lines(response, len(response.body)), "Connection: close")
        self._owner.write_buffer.send(self.transport, format_response_head(response, *lines) + response.body)
        self._linger()

    def _linger(self) -> None:
        """Close soon. Closing at once would reset the connection: a client that still sends would lose the response."""
        self._is_lingering = True
        self.buffer = bytearray()
        self._count_head(0)
        self.deadline = inf
        self._resume_reading()
        self._loop.call_later(self._owner.limits.linger_seconds, self._close)

    # Handling a request

    async def _handle(self, head: RequestHead, body: bytes, user: User | None) -> None:
        keep_alive = head.keep_alive
        try:
            response = await self._response(head, body, user)
            if response is TOO_MANY_REQUESTS and self.user_name == "":
                keep_alive = False
            if isinstance(response.body, bytes):
                self.deadline = self.idle_since + self._owner.limits.response_seconds
                await self._write(head, response, response.body, keep_alive=keep_alive)
            else:
                keep_alive = keep_alive and not head.is_http_1_0
                await self._stream(head, response, response.body, keep_alive=keep_alive)
            if self._may_write is not None:
                await self._may_write
            if self.response_bytes or self._is_streaming:
                self.response_bytes, self._is_streaming = 0, False
                self.idle_since = time.monotonic()
        except asyncio.CancelledError:  # the server stops, or the client of a stream is gone
            keep_alive = False
        except Exception:
            log.exception("response failed: method=%s target=%s", head.method, head.target)
            keep_alive = False
        self.task = None
        self.deadline = self.idle_since + self._owner.limits.idle_seconds
        if not keep_alive:
            self._close()
        elif not self.transport.is_closing():
            if self._is_reading_paused:
                self._resume_reading()
            if self.buffer:
                self._advance()

    async def _response(self, head: RequestHead, body: bytes, user: User | None) -> Response:
        router, queue, share = self._owner.router, self._owner.queue, self._share
        path, _, query = head.target.partition("?")
        try:
            if user is None:
                user = router.access_control.authenticate(head.headers, self._certificate)
            flow = self._flow
            if flow is None or flow.user is not user:
                flow = self._use_flow(user)
            if flow.response_bytes and queue.holds_too_much(flow) and _is_list(head.method, path):
                self._is_waiting = True
                self._owner.abort_stalled_responses(flow)
                await queue.wait_for_readers(flow)
            start = time.monotonic()
            if not queue.start(flow, share, start) and not path.startswith(_PROBES):
                self._is_waiting = True
                await queue.wait(flow, share)
                start = time.monotonic()
        except StatusError as error:
            self.idle_since = time.monotonic()
            return error_response(error)
        except QueueFull:
            self.idle_since = time.monotonic()
            return TOO_MANY_REQUESTS
        finally:
            self._is_waiting = False
        try:
            return await router.handle(Request(head.method, path, Query(query), head.headers, body, user))
        finally:
            self.idle_since = end = time.monotonic()
            queue.finish(flow, share, end - start)

    def _use_flow(self, user: User) -> Flow:
        """The requests of this user. Raises `QueueFull` if it has too many connections."""
        flow = self._flow
        owner = self._owner
        queue_flow = owner.queue.flow(user)
        if queue_flow is flow:
            return queue_flow
        if queue_flow.connections >= owner.limits.user_connections and MASTERS not in user.groups:
            raise owner.queue.reject("connections")
        if flow is not None:
            flow.connections -= 1
        queue_flow.connections += 1
        self._flow = queue_flow
        if user.name != ANONYMOUS_NAME:
            self.user_name = user.name
            owner.table.authenticated(self)
        return queue_flow

    # Writing a response

    async def _write(self, head: RequestHead, response: Response, body: bytes, *, keep_alive: bool) -> None:
        lines = content_length_lines(response, len(body))
        if not keep_alive:
            lines = (*lines, "Connection: close")
        elif head.is_http_1_0:
            lines = (*lines, "Connection: keep-alive")
        start = format_response_head(response, *lines)
        if head.is_http_1_0:
            start = b"HTTP/1.0" + start[8:]
        if head.method == "HEAD":
            body = b""
        if len(body) <= _SINGLE_WRITE_BYTES:
            self._owner.write_buffer.send(self.transport, start + body)
            return
        self._owner.write_buffer.flush()
        self.transport.write(start)
        flow = self._flow
        self.response_bytes = len(body)
        if flow is not None:
            self._owner.queue.hold_response(flow, self.response_bytes)
        try:
            await self._write_pieces(body)
        finally:
            if flow is not None:
                self._owner.queue.hold_response(flow, -self.response_bytes)

    async def _write_pieces(self, body: bytes) -> None:
        """Each piece after the client has read the one before: TLS would hold a second copy of all that is written.

        Encrypting megabytes takes as long as handling many requests, so each piece waits for its turn, too.
        """
        queue, flow, share = self._owner.queue, self._flow, self._share
        view = memoryview(body)
        for at in range(0, len(body), _SINGLE_WRITE_BYTES):
            if self._may_write is not None:
                await self._may_write
            start = time.monotonic()
            if flow is not None and not queue.start(flow, share, start):
                await queue.wait(flow, share, is_new=False)
                start = time.monotonic()
            if self.transport.is_closing():
                return
            self.transport.write(view[at : at + _SINGLE_WRITE_BYTES])
            if flow is not None:
                queue.finish(flow, share, time.monotonic() - start)

    async def _stream(
        self, head: RequestHead, response: Response, body: AsyncGenerator[bytes, None], *, keep_alive: bool
    ) -> None:
        """Write chunks as they come until the stream or the client ends."""
        self._is_streaming = True
        send, transport = self._owner.write_buffer.send, self.transport
        is_chunked = not head.is_http_1_0
        async with contextlib.aclosing(body) as chunks:
            lines = ("Transfer-Encoding: chunked",) if is_chunked else ()
            if not keep_alive:
                lines = (*lines, "Connection: close")
            start = format_response_head(response, *lines)
            send(transport, start if is_chunked else b"HTTP/1.0" + start[8:])
            async for chunk in chunks:
                if len(chunk) > _SINGLE_WRITE_BYTES:
                    await self._write_large_chunk(chunk, is_chunked=is_chunked)
                elif chunk:
                    send(transport, b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
                if self._may_write is not None:
                    await self._may_write
            if is_chunked:
                send(transport, b"0\r\n\r\n")

    async def _write_large_chunk(self, chunk: bytes, *, is_chunked: bool) -> None:
        self._owner.write_buffer.flush()
        if is_chunked:
            self.transport.write(b"%x\r\n" % len(chunk))
        await self._write_pieces(chunk)
        if is_chunked:
            self.transport.write(b"\r\n")


def _is_list(method: str, path: str) -> bool:
    """Whether the response may be large."""
    route = parse(method, path)
    return route is not None and route.verb == "list"


def _may_upgrade(target: str) -> bool:
    return target.partition("?")[0].rstrip("/").endswith(_UPGRADED_SUBRESOURCES)
