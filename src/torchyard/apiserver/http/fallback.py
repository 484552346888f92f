"""aiohttp, for requests that are not plain: upgrades, chunked bodies, old versions, malformed HTTP.

Loaded by the first such request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_request import BaseRequest
from multidict import CIMultiDict

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.http.request_head import BODY_LIMIT
from torchyard.apiserver.http.response_head import content_length_lines, format_response_head, response_headers
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.routing.router import Router

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


class FallbackHandler:
    """Takes connections over, authenticates their requests, passes them to the router and writes the responses."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._access_control = router.access_control
        self._protocols = web.Server(
            self._handle, access_log=None, keepalive_timeout=3600, logger=log, max_line_size=65536, max_field_size=65536
        )

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Continue a connection whose next bytes are `data`."""
        protocol = self._protocols()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        protocol.data_received(data)

    async def stop(self, seconds: float) -> None:
        await self._protocols.shutdown(seconds)

    async def _handle(self, incoming: BaseRequest) -> web.StreamResponse:
        path, _, query = incoming.raw_path.partition("?")
        try:
            user = self._access_control.authenticate(incoming.headers, _certificate(incoming))
            body = await _body(incoming) if incoming.body_exists else b""
        except StatusError as error:
            return await _write(incoming, error_response(error))
        request = Request(
            method=incoming.method,
            path=path,
            query=Query(query),
            headers=incoming.headers,
            body=body,
            user=user,
            incoming=incoming,
        )
        response = await self._router.handle(request)
        if isinstance(response.upgraded, web.StreamResponse):
            return response.upgraded
        if isinstance(response.body, bytes):
            return await _write(incoming, response)
        return await _stream(incoming, response, response.body)


def _certificate(incoming: BaseRequest) -> bytes | None:
    transport = incoming.transport
    return peer_certificate(transport.get_extra_info("ssl_object")) if transport is not None else None


async def _body(incoming: BaseRequest) -> bytes:
    """The whole body; 413 as soon as it is known to be too large, so that no such body is held in memory."""
    if (incoming.content_length or 0) > BODY_LIMIT:
        raise errors.too_large(BODY_LIMIT)
    parts: list[bytes] = []
    size = 0
    async for part in incoming.content.iter_any():
        size += len(part)
        if size > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)
        parts.append(part)
    return b"".join(parts)


class WrittenResponse(web.StreamResponse):
    """Stands for a response that was written already: aiohttp only learns whether the connection stays open."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._is_kept_alive = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._is_kept_alive

    async def prepare(self, request: BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


_KEEP_ALIVE, _CLOSE = WrittenResponse(keep_alive=True), WrittenResponse(keep_alive=False)


async def _write(incoming: BaseRequest, response: Response) -> WrittenResponse:
    """Write a response that is not a stream."""
    body = response.body
    assert isinstance(body, bytes)
    keep_alive = incoming.keep_alive and response.status != 413  # the rest of a body that is too large is not read
    head = _head(incoming, response, len(body), keep_alive=keep_alive)
    if incoming.method == "HEAD":
        body = b""
    try:
        await incoming.writer.write(head)
        await incoming.writer.write(body)
    except ConnectionResetError:
        return _CLOSE
    return _KEEP_ALIVE if keep_alive else _CLOSE


def _head(incoming: BaseRequest, response: Response, size: int, *, keep_alive: bool) -> bytes:
    lines = content_length_lines(response, size)
    if not keep_alive:
        return format_response_head(response, *lines, "Connection: close")
    if incoming.version < HttpVersion11:
        return format_response_head(response, *lines, "Connection: keep-alive")
    return format_response_head(response, *lines)


async def _stream(incoming: BaseRequest, response: Response, body: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Write chunks as they come until the stream or the client ends."""
    streamed = web.StreamResponse(status=response.status, headers=CIMultiDict(response_headers(response)))
    streamed.enable_chunked_encoding()
    async with contextlib.aclosing(body) as chunks:
        with contextlib.suppress(ConnectionResetError, asyncio.CancelledError):
            await streamed.prepare(incoming)
            async for chunk in chunks:
                await streamed.write(chunk)
            await streamed.write_eof()
    return streamed
