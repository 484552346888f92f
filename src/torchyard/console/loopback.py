"""The HTTP server of `yard console`: on the loopback address only, without TLS, for one person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from torchyard.api.errors import StatusError, YardError
from torchyard.console.app import ConsoleApp
from torchyard.console.forwarding import OWNER, Owner
from torchyard.console.request import ConsoleRequest, ConsoleResponse, status_response
from torchyard.console.sessions import COOKIE_PATH

ADDRESS = "127.0.0.1"
DEFAULT_PORT = 8686
# As the API server's limit of a body.
_MAX_BODY_BYTES = 3 << 20
_STOP_SECONDS = 1.0


class LoopbackServer:
    """`async with LoopbackServer(app, port) as server:` serves; `server.url` is where."""

    def __init__(self, app: ConsoleApp[Owner, Owner], port: int, *, may_choose: bool = False) -> None:
        """`may_choose`: take another port if this one is in use."""
        self._app, self._port, self._may_choose = app, port, may_choose
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, handler_cancellation=True),
            shutdown_timeout=_STOP_SECONDS,
        )
        self.url = ""

    async def __aenter__(self) -> LoopbackServer:
        await self._runner.setup()
        try:
            port = await self._listen(self._port)
        except BaseException:
            await self._runner.cleanup()
            raise
        self.url = f"http://{ADDRESS}:{port}{COOKIE_PATH}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _listen(self, port: int) -> int:
        try:
            await web.TCPSite(self._runner, ADDRESS, port).start()
        except OSError as error:
            if self._may_choose and port:
                return await self._listen(0)
            raise YardError(
                f"cannot listen on {ADDRESS}:{port}: {error.strerror}",
                hint="choose another port with --port (0 takes a free one)",
                code="PortTaken",
            ) from error
        return int(self._runner.addresses[0][1])

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        path, _, query = incoming.raw_path.partition("?")
        is_below = path == COOKIE_PATH or path.startswith(f"{COOKIE_PATH}/")
        if not is_below:
            return web.Response(status=404, text="404 page not found\n")
        request = ConsoleRequest(
            incoming.method,
            path.removeprefix(COOKIE_PATH),
            query,
            incoming.headers,
            b"",
            is_tls=False,
        )
        response = await self._respond(request, incoming)
        return await _write(incoming, response)

    async def _respond(self, request: ConsoleRequest, incoming: web.BaseRequest) -> ConsoleResponse:
        try:
            session = self._app.session_of(request)
        except StatusError:
            session = None  # the app refuses it, with its reason, unless it asks for a page
        if incoming.body_exists:
            body = await _read_body(incoming)
            if body is None:
                return status_response(StatusError(413, "RequestEntityTooLarge", "the body is too large"))
            request = ConsoleRequest(request.method, request.path, request.query, request.headers, body, is_tls=False)
        return await self._app.handle(request, OWNER if session is not None else None)


async def _read_body(incoming: web.BaseRequest) -> bytes | None:
    """The body; None if it is too large."""
    body = bytearray()
    async for chunk in incoming.content.iter_any():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            return None
    return bytes(body)


async def _write(incoming: web.BaseRequest, response: ConsoleResponse) -> web.StreamResponse:
    headers = {**response.headers, "Content-Type": response.content_type}
    if isinstance(response.body, bytes):
        return web.Response(status=response.status, headers=headers, body=response.body)
    outgoing = web.StreamResponse(status=response.status, headers=headers)
    await _stream(incoming, outgoing, response.body)
    return outgoing


async def _stream(incoming: web.BaseRequest, outgoing: web.StreamResponse, chunks: AsyncGenerator[bytes, None]) -> None:
    try:
        async with aclosing(chunks):
            await outgoing.prepare(incoming)
            async for chunk in chunks:
                await outgoing.write(chunk)
            await outgoing.write_eof()
    except (ConnectionError, asyncio.CancelledError):  # the browser is gone, or the session has ended
        if incoming.transport is not None:
            incoming.transport.abort()
        raise
