"""The listening socket of the API server, and its connections."""

from __future__ import annotations

import asyncio
import importlib
import ssl
from typing import TYPE_CHECKING

from torchyard.apiserver.http.connection import ServerConnection
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.routing.router import Router

if TYPE_CHECKING:
    from torchyard.apiserver.http.fallback import FallbackHandler

# A connection without a request for so long is closed; how often idle connections are looked for.
IDLE_SECONDS = 3600.0
IDLE_CHECK_SECONDS = 60.0
# How long current requests may take to finish when the server stops.
STOP_SECONDS = 1.0


class HttpServer:
    """Accepts connections, plain or TLS, until it is stopped."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.write_buffer = WriteBuffer()
        self.connections: set[ServerConnection] = set()
        self._listener: asyncio.Server | None = None
        self._idle_check: asyncio.Task[None] | None = None
        self._fallback: asyncio.Future[FallbackHandler] | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen; returns the port, which the system chooses for port 0."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: ServerConnection(self), host, port, ssl=context, backlog=4096)
        self._idle_check = loop.create_task(self._close_idle())
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._listener is None or self._idle_check is None:
            return
        self._listener.close()
        self._idle_check.cancel()
        for connection in list(self.connections):
            connection.shut_down()
        tasks = {connection.task for connection in self.connections if connection.task is not None}
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in unfinished:
                task.cancel()
        self.write_buffer.flush()
        for connection in list(self.connections):
            connection.transport.close()
        if self._fallback is not None and not self._fallback.done():
            self._fallback.cancel()
        elif self._fallback is not None and self._fallback.exception() is None:
            await self._fallback.result().stop(STOP_SECONDS)

    async def fall_back(self, connection: ServerConnection) -> None:
        """Pass a connection to aiohttp, from the first byte that the fast path did not handle."""
        if self._fallback is None:
            self._fallback = asyncio.ensure_future(self._load_fallback())
        try:
            fallback = await asyncio.shield(self._fallback)
        except BaseException:
            connection.transport.abort()  # nothing can respond
            raise
        self.connections.discard(connection)
        self.write_buffer.flush()
        if not connection.transport.is_closing():
            fallback.take(connection.transport, bytes(connection.buffer))

    async def _load_fallback(self) -> FallbackHandler:
        """Importing aiohttp takes a good part of a second: the first request that needs it pays, not the start."""
        name = "torchyard.apiserver.http.fallback"
        module = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)
        handler: FallbackHandler = module.FallbackHandler(self.router)
        return handler

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            for connection in list(self.connections):
                if connection.task is None and connection.idle_since < loop.time() - IDLE_SECONDS:
                    connection.transport.close()
