"""The sockets: aiohttp in front of the server. Knows TLS, bodies, streams and nothing of resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_request import BaseRequest
from multidict import CIMultiDict

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.exchange import Query, Request, Response
from torchyard.apiserver.server import Server, refusal

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

BODY_LIMIT = 3 << 20
# A body up to this size is copied behind its head, so that both leave in one write.
_ONE_WRITE = 1 << 16


class Front:
    """Takes HTTP requests, finds out who asks, hands them to the server and writes what it answers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._guard = server.guard
        self._runner: web.ServerRunner | None = None

    async def start(self, sock_host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen; answers the port, which is chosen if 0 was asked for."""
        handler = web.Server(
            self._answer, access_log=None, keepalive_timeout=3600, logger=log, max_line_size=65536, max_field_size=65536
        )
        self._runner = web.ServerRunner(handler, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, sock_host, port, ssl_context=context, backlog=4096)
        await site.start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, incoming: BaseRequest) -> web.StreamResponse:
        path, _, query = incoming.raw_path.partition("?")
        try:
            user = self._guard.identify(incoming.headers, _certificate(incoming))
            body = await _body(incoming) if incoming.body_exists else b""
        except StatusError as error:
            return await _write(incoming, refusal(error))
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
        if isinstance(response.taken_over, web.StreamResponse):
            return response.taken_over
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
    if incoming.content.is_eof():  # it came with the head, as most do
        whole = incoming.content.read_nowait()
        if len(whole) > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)
        return whole
    parts: list[bytes] = []
    size = 0
    async for part in incoming.content.iter_any():
        size += len(part)
        if size > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _headers(response: Response) -> Iterator[tuple[str, str]]:
    yield "Content-Type", response.content_type
    if "Cache-Control" not in response.headers:
        yield "Cache-Control", "no-cache, private"
    yield from response.headers.items()
    for sentence in response.warnings:
        yield "Warning", f'299 - "{_quoted(sentence)}"'


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
    """Write an answer that is whole. aiohttp's own response object would cost more than all else about a GET."""
    body = response.body
    assert isinstance(body, bytes)
    stays = incoming.keep_alive and response.status != 413  # of a body too large, the rest is not read
    head = _head(incoming, response, len(body), stays=stays)
    if incoming.method == "HEAD":
        body = b""
    try:
        if len(body) <= _ONE_WRITE:
            await incoming.writer.write(head + body)
        else:
            await incoming.writer.write(head)
            await incoming.writer.write(body)
    except ConnectionResetError:
        return _CLOSED
    return _OPEN if stays else _CLOSED


def _head(incoming: BaseRequest, response: Response, size: int, *, stays: bool) -> bytes:
    lines = [_status_line(response.status), *(f"{name}: {value}" for name, value in _headers(response))]
    lines.append(f"Date: {_date(int(time.time()))}")
    if response.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):  # which have no body at all
        lines.append(f"Content-Length: {size}")
    if not stays:
        lines.append("Connection: close")
    elif incoming.version < HttpVersion11:
        lines.append("Connection: keep-alive")
    return "\r\n".join((*lines, "\r\n")).encode()


@lru_cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _quoted(sentence: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in sentence)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


async def _stream(incoming: BaseRequest, response: Response, body: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Write pieces as they come until the stream or the client ends."""
    made = web.StreamResponse(status=response.status, headers=CIMultiDict(_headers(response)))
    made.enable_chunked_encoding()
    async with contextlib.aclosing(body) as pieces:
        with contextlib.suppress(ConnectionResetError, asyncio.CancelledError):
            await made.prepare(incoming)
            async for piece in pieces:
                await made.write(piece)
            await made.write_eof()
    return made
