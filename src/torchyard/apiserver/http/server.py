"""Where the server listens, and all the connections that it has."""

from __future__ import annotations

import asyncio
import importlib
import ssl
from typing import TYPE_CHECKING

from torchyard.apiserver.http.connection import Connection
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.routing.router import Router

if TYPE_CHECKING:
    from torchyard.apiserver.http.fallback import FallbackHandler

# A connection is closed after so long without a request, and looked at so often.
IDLE_SECONDS = 3600.0
SWEEP_SECONDS = 60.0
# How long requests under way may take to end when the server stops.
STOP_SECONDS = 1.0


class HttpServer:
    """Takes connections, plain or TLS, until it is stopped."""

    def __init__(self, server: Router) -> None:
        self.server = server
        self.outbox = WriteBuffer()
        self.connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._unusual: asyncio.Future[FallbackHandler] | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen; answers the port, which is chosen if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), host, port, ssl=context, backlog=4096)
        self._sweeper = loop.create_task(self._sweep())
        chosen: int = self._listener.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        if self._listener is None or self._sweeper is None:
            return
        self._listener.close()
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.end()
        under_way = {one.task for one in self.connections if one.task is not None}
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        self.outbox.empty()
        for connection in list(self.connections):
            connection.transport.close()
        if self._unusual is not None and not self._unusual.done():
            self._unusual.cancel()
        elif self._unusual is not None and self._unusual.exception() is None:
            await self._unusual.result().stop(STOP_SECONDS)

    async def hand_over(self, connection: Connection) -> None:
        """Let aiohttp go on with a connection, from the bytes that were not understood here."""
        if self._unusual is None:
            self._unusual = asyncio.ensure_future(self._load())
        try:
            unusual = await asyncio.shield(self._unusual)
        except BaseException:
            connection.transport.abort()  # nobody is left who could answer
            raise
        self.connections.discard(connection)
        self.outbox.empty()
        if not connection.transport.is_closing():
            unusual.take(connection.transport, bytes(connection.buffer))

    async def _load(self) -> FallbackHandler:
        """aiohttp takes a good part of a second to load, which the first request of its kind pays, not the start."""
        name = "torchyard.apiserver.http.fallback"
        module = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)
        made: FallbackHandler = module.FallbackHandler(self.server)
        return made

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for connection in list(self.connections):
                if connection.task is None and connection.idle_since < loop.time() - IDLE_SECONDS:
                    connection.transport.close()
