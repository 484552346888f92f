"""The connections of the operator's servers: limited in number and time, because every pod can open them."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from contextlib import AsyncExitStack
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler

from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.limits import HttpLimits
from torchyard.apiserver.http.listener import Listener

# The API server closes its own idle connections after 90 seconds: it never sends a review on one that closes here.
LIMITS = HttpLimits(
    handshake_seconds=10.0,
    head_seconds=10.0,
    body_seconds=10.0,
    idle_seconds=120.0,
    connections=1024,
    unauthenticated_connections=1024,
)

_NO_ACCESS_LOG = cast(logging.Logger, None)  # as AppRunner passes it


class LimitedConnection(web.RequestHandler):
    """A connection that the table closes if there are too many, and that is closed without a request in time."""

    user_name = ""  # requests are authenticated one by one

    def __init__(self, server: web.Server, address: str, table: ConnectionTable, limits: HttpLimits) -> None:
        self._clock = asyncio.get_running_loop()
        super().__init__(server, loop=self._clock, keepalive_timeout=limits.idle_seconds, access_log=_NO_ACCESS_LOG)
        self.address, self.idle_since, self.is_idle = address, time.monotonic(), True
        self._table, self._head_seconds = table, limits.head_seconds
        self._head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._table.add(self)
        self._head_deadline = self._clock.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._table.remove(self)
        self.begin_request()
        super().connection_lost(exc)

    def begin_request(self) -> None:
        self.is_idle = False
        if self._head_deadline is not None:
            self._head_deadline.cancel()

    def end_request(self) -> None:
        self.is_idle, self.idle_since = True, time.monotonic()

    def evict(self) -> None:
        self.force_close()


@web.middleware
async def _observe_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, LimitedConnection)
    connection.begin_request()
    try:
        return await handler(request)
    finally:
        connection.end_request()


async def listen(
    app: web.Application,
    host: str,
    port: int,
    *,
    closing: AsyncExitStack,
    tls: ssl.SSLContext | None = None,
    limits: HttpLimits = LIMITS,
) -> int:
    """Serve until `closing` closes; returns the port. Raises OSError."""
    app.middlewares.insert(0, _observe_request)
    runner = web.AppRunner(app)
    await runner.setup()
    closing.push_async_callback(runner.cleanup)
    server, table = runner.server, ConnectionTable(limits)
    assert server is not None
    listener = Listener(table, limits, tls, lambda address: LimitedConnection(server, address, table, limits))
    closing.callback(listener.close)
    return await listener.listen(host, port)
