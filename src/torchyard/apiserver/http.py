"""The sockets: aiohttp in front of the server. Knows TLS, bodies, streams and nothing of resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncGenerator

from aiohttp import web
from aiohttp.web_request import BaseRequest

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.tls import peer_certificate
from torchyard.apiserver.exchange import Query, Request, Response
from torchyard.apiserver.server import Server, refusal

log = logging.getLogger(__name__)

BODY_LIMIT = 3 << 20


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
            return _plain(refusal(error))
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
            return _plain(response)
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
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _headers(response: Response) -> dict[str, str]:
    return {"Content-Type": response.content_type, "Cache-Control": "no-cache, private", **response.headers}


def _plain(response: Response) -> web.Response:
    assert isinstance(response.body, bytes)
    made = web.Response(status=response.status, body=response.body, headers=_headers(response))
    _warn(made, response)
    if response.status == 413:
        made.force_close()  # the rest of the body is not read
    return made


def _warn(made: web.StreamResponse, response: Response) -> None:
    for sentence in response.warnings:
        made.headers.add("Warning", f'299 - "{_quoted(sentence)}"')


def _quoted(sentence: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in sentence)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


async def _stream(incoming: BaseRequest, response: Response, body: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Write pieces as they come until the stream or the client ends."""
    made = web.StreamResponse(status=response.status, headers=_headers(response))
    made.enable_chunked_encoding()
    _warn(made, response)
    async with contextlib.aclosing(body) as pieces:
        with contextlib.suppress(ConnectionResetError, asyncio.CancelledError):
            await made.prepare(incoming)
            async for piece in pieces:
                await made.write(piece)
            await made.write_eof()
    return made
