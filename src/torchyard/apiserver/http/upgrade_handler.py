"""aiohttp, for requests that upgrade their connection: exec, attach, port-forward, and watches over WebSockets.

Loaded by the first such request. A connection serves one of them and is closed afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_request import BaseRequest

from torchyard.api.errors import StatusError
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.http.connection import ServerConnection
from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.json_layout import lay_out
from torchyard.apiserver.http.response_head import content_length_lines, format_response_head
from torchyard.apiserver.request.request import Query, ReceivedRequest, Request
from torchyard.apiserver.request.response import Response, StreamAborted, error_response
from torchyard.apiserver.routing.router import Router
from torchyard.apiserver.streams.websocket_responses import is_websocket, stream_response

log = logging.getLogger(__name__)


class _WithoutTraceback(logging.Filter):
    """Malformed HTTP is the client's error: it is logged in one line, as a warning."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error.message}", (), None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


log.addFilter(_WithoutTraceback())


class UpgradedConnection:
    """A connection that aiohttp has taken over: it counts, and is not closed for others."""

    is_idle = False

    def __init__(self, transport: asyncio.Transport, address: str, user_name: str) -> None:
        self.transport = transport
        self.address = address
        self.user_name = user_name
        self.idle_since = time.monotonic()

    def evict(self) -> None:
        self.transport.abort()


class UpgradeHandler:
    """Takes connections over, authenticates their requests, passes them to the router and writes the responses."""

    def __init__(self, router: Router, table: ConnectionTable) -> None:
        self._router = router
        self._access_control = router.access_control
        self._table = table
        self._connections: set[UpgradedConnection] = set()
        self._protocols = web.Server(
            self._handle,
            access_log=None,
            handler_cancellation=True,  # a pod may never answer
            keepalive_timeout=0,
            logger=log,
            max_line_size=65536,
            max_field_size=65536,
        )

    def take(self, connection: ServerConnection) -> None:
        """Continue a connection whose next bytes are in its buffer."""
        transport, data = connection.transport, bytes(connection.buffer)
        upgraded = UpgradedConnection(transport, connection.address, connection.user_name)
        connection.forget()
        self._connections.add(upgraded)
        self._table.add(upgraded)
        self._table.authenticated(upgraded)
        protocol = self._protocols()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        protocol.data_received(data)

    def remove_closed(self) -> None:
        for upgraded in [upgraded for upgraded in self._connections if upgraded.transport.is_closing()]:
            self._connections.discard(upgraded)
            self._table.remove(upgraded)

    async def stop(self, seconds: float) -> None:
        await self._protocols.shutdown(seconds)

    async def _handle(self, incoming: BaseRequest) -> web.StreamResponse:
        path, _, query = incoming.raw_path.partition("?")
        try:
            user = self._access_control.authenticate(incoming.headers, _certificate(incoming))
        except StatusError as error:
            return await _write(incoming, error_response(error))
        request = Request(
            method=incoming.method,
            path=path,
            query=Query(query),
            headers=incoming.headers,
            body=b"",
            user=user,
            incoming=incoming,
            received=ReceivedRequest(
                incoming.raw_path,
                incoming.remote or "",
                incoming.content.iter_any() if incoming.can_read_body else None,
            ),
        )
        response = await self._router.handle(request)
        if not isinstance(response.body, bytes) and is_websocket(incoming):
            try:
                response = await stream_response(incoming, response)
            except StatusError as error:
                response = error_response(error)
        if isinstance(response.upgraded, web.StreamResponse):
            return response.upgraded
        return await _write(incoming, response)


def _certificate(incoming: BaseRequest) -> bytes | None:
    transport = incoming.transport
    return peer_certificate(transport.get_extra_info("ssl_object")) if transport is not None else None


class WrittenResponse(web.StreamResponse):
    """Stands for a response that was written already."""

    @property
    def keep_alive(self) -> bool:
        return False

    async def prepare(self, request: BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


async def _write(incoming: BaseRequest, response: Response) -> WrittenResponse:
    """Write a response to a request that did not upgrade its connection, which is closed then."""
    if not isinstance(response.body, bytes):
        return await _write_stream(incoming, response, response.body)
    body, tail = await lay_out(response, incoming.headers, incoming.raw_path.partition("?")[2])
    body += tail
    head = format_response_head(response, *content_length_lines(response, len(body)), "Connection: close")
    try:
        await incoming.writer.write(head)
        await incoming.writer.write(b"" if incoming.method == "HEAD" else body)
    except ConnectionResetError:
        log.debug("client is gone: path=%s", incoming.path)
    return WrittenResponse()


async def _write_stream(
    incoming: BaseRequest, response: Response, body: AsyncGenerator[bytes, None]
) -> WrittenResponse:
    """Write the response of a pod to a request whose body was streamed to it."""
    length = response.proxied.length if response.proxied is not None else None
    is_chunked = length is None
    length_line = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {length}"
    writer = incoming.writer
    try:
        async with contextlib.aclosing(body) as chunks:
            await writer.write(format_response_head(response, length_line, "Connection: close"))
            async for chunk in chunks:
                if chunk:
                    await writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
            if is_chunked:
                await writer.write(b"0\r\n\r\n")
    except ConnectionResetError:
        log.debug("client is gone: path=%s", incoming.path)
    except StreamAborted as aborted:
        log.info("proxied response aborted: path=%s error=%r", incoming.path, str(aborted))
    return WrittenResponse()
