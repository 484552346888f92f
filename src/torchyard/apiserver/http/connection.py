"""One connection: reads requests, passes them to the router and writes the responses in order.

A user is authenticated and authorized before the body is read, unless the body came together with the head. A get of a
stored object is answered at once, all other requests in a task. Only requests that upgrade the connection, for exec,
attach and port-forward, go to aiohttp, with all their bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from math import inf
from typing import Protocol, cast

from multidict import MultiMapping

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.authentication import ANONYMOUS_NAME, MASTERS, User
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.http.body_reader import BodyReader
from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.fair_queue import ConnectionShare, FairQueue, Flow, QueueFull
from torchyard.apiserver.http.json_layout import is_for_people, lay_out
from torchyard.apiserver.http.limits import BODY_LIMIT, HttpLimits
from torchyard.apiserver.http.request_head import CHUNKED, MalformedRequest, RequestHead
from torchyard.apiserver.http.request_reader import RequestReader
from torchyard.apiserver.http.response_writer import SINGLE_WRITE_BYTES, ResponseWriter
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.request.request import Query, ReceivedRequest, Request
from torchyard.apiserver.request.response import Response, StreamAborted, error_response
from torchyard.apiserver.request.route import parse
from torchyard.apiserver.routing.router import Router

log = logging.getLogger(__name__)

# How much a client may send ahead while a request is being handled.
_MAX_AHEAD_BYTES = 1 << 16
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
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
        self.task: asyncio.Task[None] | None = None  # handles the current request
        self.idle_since = time.monotonic()
        self.deadline = self.idle_since + owner.limits.head_seconds
        self._certificate: bytes | None = None
        self._reader = RequestReader(owner)
        self._body: BodyReader | None = None  # of a request whose body is incomplete
        self._headers: MultiMapping[str] | None = None  # of the last get that was answered at once
        self._static_user: User | None = None  # of these headers
        self._accept = ""
        self._flow: Flow | None = None
        self._share = ConnectionShare()
        self._writer: ResponseWriter
        self._is_waiting = False  # for its turn
        self._received: ReceivedRequest | None = None  # of the current request, if it may be for a proxy
        self._is_lingering = False  # the client may read the last response; nothing it sends counts
        self._is_reading_paused = False  # the client sent too far ahead

    @property
    def is_idle(self) -> bool:
        return self.task is None and self._body is None

    @property
    def _is_interruptible(self) -> bool:
        """Whether the current request need not be completed: it streams, waits for its turn or for a pod."""
        is_proxied = self._received is not None and self._received.ends_with_client
        return self._writer.is_streaming or self._is_waiting or is_proxied

    @property
    def buffer(self) -> bytearray:
        """The bytes that are not handled yet."""
        return self._reader.buffer

    @property
    def response_bytes(self) -> int:
        """The size of the large response that is being written."""
        return self._writer.response_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        owner = self._owner
        self.transport = cast(asyncio.Transport, transport)
        self._writer = ResponseWriter(self.transport, owner.write_buffer, owner.queue, self._share)
        self._certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        # The kernel detects clients that vanished without closing.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        owner.connections.add(self)
        owner.table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.forget()
        self.resume_writing()
        if self._is_interruptible and self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """This object no longer reads the connection."""
        self._owner.connections.discard(self)
        self._owner.table.remove(self)
        self._reader.clear()
        self._end_body()
        if self._flow is not None:
            self._flow.connections -= 1
            self._flow = None

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        if self.task is None:
            self._advance(data)
            return
        buffer = self._reader.buffer
        buffer += data
        if len(buffer) > _MAX_AHEAD_BYTES and not self._is_reading_paused:
            self._pause_reading()

    def shut_down(self) -> None:
        """Stop a stream; close the connection once the current request has its response."""
        if self.task is None:
            self._close()
        elif self._is_interruptible:
            self.task.cancel()

    def evict(self) -> None:
        self.transport.abort()

    def expire(self) -> None:
        """The deadline is over: of the head, of the body, or for reading the response. As Go, without a response."""
        if self.is_idle and not self._reader.buffer:
            self.transport.close()
        else:
            self.transport.abort()

    def stalled_response_since(self, flow: Flow) -> float:
        """Since when the client has not read a response of this user; infinity if it reads, or follows a stream."""
        return inf if self._writer.is_streaming or self._flow is not flow else self._writer.stalled_since

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

    def _advance(self, data: bytes = b"") -> None:
        """Go on with the request that is being read, and start it once it is complete."""
        reader = self._reader
        if self._body is not None:
            reader.buffer += data
            self._read_body(self._body)
            return
        is_begun = reader.is_waiting_for_head
        try:
            request = reader.next_request(data)
        except MalformedRequest as malformed:
            self._reject_malformed(malformed)
            return
        if request is None:
            if not is_begun:
                self.deadline = time.monotonic() + self._owner.limits.head_seconds
            return
        head, body = request
        if head.is_upgrade:
            self.transport.pause_reading()
            self.task = self._loop.create_task(self._owner.upgrade(self))
        elif body is None:
            self._begin_body(head)
        elif body or reader.buffer or not self._answer_at_once(head):
            self._start(head, body, None)

    def _begin_body(self, head: RequestHead) -> None:
        """Read the rest of the body, if the user may send this request at all."""
        limits = self._owner.limits
        try:
            path, _, query = head.target.partition("?")
            user = self._owner.router.authenticate(head.method, path, head.headers, self._certificate)
            flow = self._use_flow(user)
            self._owner.router.authorize(head.method, path, Query(query), user, size=head.content_length)
            if head.content_length > BODY_LIMIT:
                raise errors.too_large(BODY_LIMIT)
            # Of a chunked body the size is unknown until it is complete.
            size = BODY_LIMIT if head.content_length == CHUNKED else head.content_length
            is_over = flow.body_bytes + size > limits.user_body_bytes
            if is_over or self._owner.body_bytes + size > limits.total_body_bytes:
                raise self._owner.queue.reject("body-bytes")
        except StatusError as error:
            self._reject(error_response(error))
            return
        except QueueFull:
            self._reject(TOO_MANY_REQUESTS)
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
            self._reject(error_response(error))
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

    def _reject_malformed(self, malformed: MalformedRequest) -> None:
        log.info("malformed request: address=%s status=%r", self.address, malformed.status)
        self._owner.write_buffer.send(self.transport, malformed.response())
        self._linger()

    def _reject(self, response: Response) -> None:
        """Respond without reading the body, and close the connection."""
        self._writer.reject(response)
        self._linger()

    def _linger(self) -> None:
        """Close soon. Closing at once would reset the connection: a client that still sends would lose the response."""
        self._is_lingering = True
        self._reader.clear()
        self.deadline = inf
        self._resume_reading()
        self._loop.call_later(self._owner.limits.linger_seconds, self._close)

    # Handling a request

    def _answer_at_once(self, head: RequestHead) -> bool:
        """Answer a get of a stored object. False, without an effect, for any other request, and if others wait."""
        if head.method != "GET" or not head.keep_alive or head.is_http_1_0 or "?" in head.target:
            return False
        owner, flow = self._owner, self._flow
        queue = owner.queue
        if queue.waiting or self._writer.is_paused:
            return False
        if head.headers is not self._headers:  # a client repeats its headers, which are parsed once
            self._headers = head.headers
            self._static_user = owner.router.access_control.static_user(head.headers, self._certificate)
            self._accept = head.headers.get("Accept", "")
            if is_for_people(head.headers):
                self._static_user = None
        user = self._static_user
        if user is None or flow is None or flow.user is not user:
            return False
        start = time.monotonic()
        stored = owner.router.get_stored(head.target, user, self._accept)
        if stored is None or len(stored.data) > SINGLE_WRITE_BYTES or not queue.start(flow, self._share, start):
            return False
        self._writer.write_json(stored.data)
        self.idle_since = end = time.monotonic()
        self.deadline = end + owner.limits.idle_seconds
        queue.finish(flow, self._share, end - start)
        owner.router.count_stored(stored, end - start)
        return True

    def _start(self, head: RequestHead, body: bytes, user: User | None) -> None:
        self.deadline = inf
        self.task = self._loop.create_task(self._handle(head, body, user))

    async def _handle(self, head: RequestHead, body: bytes, user: User | None) -> None:
        keep_alive, writer = head.keep_alive, self._writer
        try:
            response = await self._response(head, body, user)
            if response is TOO_MANY_REQUESTS and self.user_name == "":
                keep_alive = False
            if isinstance(response.body, bytes):
                body, tail = await lay_out(response, head.headers, head.target.partition("?")[2])
                self.deadline = self.idle_since + self._owner.limits.response_seconds
                await writer.write(head, response, body, tail, keep_alive=keep_alive, flow=self._flow)
            else:
                keep_alive = keep_alive and not head.is_http_1_0
                await writer.stream(head, response, response.body, keep_alive=keep_alive, flow=self._flow)
            if writer.is_paused:
                await writer.wait_for_client()
            if writer.response_bytes or writer.is_streaming:
                writer.response_bytes, writer.is_streaming = 0, False
                self.idle_since = time.monotonic()
        except asyncio.CancelledError:  # the server stops, or the client of a stream is gone
            keep_alive = False
        except StreamAborted as aborted:
            log.info("proxied response aborted: target=%s error=%r", head.target, str(aborted))
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
                user = router.authenticate(head.method, path, head.headers, self._certificate)
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
            request = Request(head.method, path, Query(query), head.headers, body, user)
            if "/proxy" in path or "%" in path or router.aggregation is not None:
                request.received = self._received = ReceivedRequest(head.target, self.address)
            return await router.handle(request)
        finally:
            self._received = None
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


def _is_list(method: str, path: str) -> bool:
    """Whether the response may be large."""
    route = parse(method, path)
    return route is not None and route.verb == "list"
