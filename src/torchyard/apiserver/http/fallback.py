"""aiohttp in front of the server, for requests that are not plain: upgrades, bodies in pieces, old and bad HTTP.

Knows TLS, bodies, streams and nothing of resources. Loaded only when such a request comes.
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
from torchyard.apiserver.http.head import BODY_LIMIT, answer_fields, answer_head, length_line
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.routing.router import Router

log = logging.getLogger(__name__)


class _InOneLine(logging.Filter):
    """What is no HTTP at all is the client's fault: it is told in one line, without where we noticed."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error.message}", (), None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


log.addFilter(_InOneLine())


class FallbackHandler:
    """Takes over connections, finds out who asks, hands requests to the server and writes what it answers."""

    def __init__(self, server: Router) -> None:
        self._server = server
        self._access_control = server.access_control
        self._protocols = web.Server(
            self._answer, access_log=None, keepalive_timeout=3600, logger=log, max_line_size=65536, max_field_size=65536
        )

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with a connection whose next bytes are `data`."""
        protocol = self._protocols()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        protocol.data_received(data)

    async def stop(self, seconds: float) -> None:
        await self._protocols.shutdown(seconds)

    async def _answer(self, incoming: BaseRequest) -> web.StreamResponse:
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
        response = await self._server.handle(request)
        if isinstance(response.upgraded, web.StreamResponse):
            return response.upgraded
        if isinstance(response.body, bytes):
            return await _write(incoming, response)
        return await _stream(incoming, response, response.body)


def _certificate(incoming: BaseRequest) -> bytes | None:
    transport = incoming.transport
    return peer_certificate(transport.get_extra_info("ssl_object")) if transport is not None else None


async def _body(incoming: BaseRequest) -> bytes:
    """The whole body, or 413 as soon as it is known to be too large: it is never held."""
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


class Written(web.StreamResponse):
    """What aiohttp is told of an answer that was written already: whether the connection stays open."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._stays = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._stays

    async def prepare(self, request: BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


_OPEN, _CLOSED = Written(keep_alive=True), Written(keep_alive=False)


async def _write(incoming: BaseRequest, response: Response) -> Written:
    """Write an answer that is whole."""
    body = response.body
    assert isinstance(body, bytes)
    stays = incoming.keep_alive and response.status != 413  # of a body too large, the rest is not read
    head = _head(incoming, response, len(body), stays=stays)
    if incoming.method == "HEAD":
        body = b""
    try:
        await incoming.writer.write(head)
        await incoming.writer.write(body)
    except ConnectionResetError:
        return _CLOSED
    return _OPEN if stays else _CLOSED


def _head(incoming: BaseRequest, response: Response, size: int, *, stays: bool) -> bytes:
    lines = length_line(response, size)
    if not stays:
        return answer_head(response, *lines, "Connection: close")
    if incoming.version < HttpVersion11:
        return answer_head(response, *lines, "Connection: keep-alive")
    return answer_head(response, *lines)


async def _stream(incoming: BaseRequest, response: Response, body: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Write pieces as they come until the stream or the client ends."""
    made = web.StreamResponse(status=response.status, headers=CIMultiDict(answer_fields(response)))
    made.enable_chunked_encoding()
    async with contextlib.aclosing(body) as pieces:
        with contextlib.suppress(ConnectionResetError, asyncio.CancelledError):
            await made.prepare(incoming)
            async for piece in pieces:
                await made.write(piece)
            await made.write_eof()
    return made
