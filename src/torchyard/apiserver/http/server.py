"""The HTTP server: its sockets, its connections, and their deadlines."""

from __future__ import annotations

import asyncio
import importlib
import logging
import ssl
import time
from typing import TYPE_CHECKING

from torchyard.apiserver.http.connection import ServerConnection
from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.fair_queue import FairQueue, Flow
from torchyard.apiserver.http.limits import HttpLimits
from torchyard.apiserver.http.listener import Listener
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.routing.router import Router

if TYPE_CHECKING:
    from torchyard.apiserver.http.upgrade_handler import UpgradeHandler

log = logging.getLogger(__name__)

# How long current requests may take to finish when the server stops.
STOP_SECONDS = 1.0


class HttpServer:
    """Accepts connections, plain or TLS, until it is stopped."""

    def __init__(self, router: Router, limits: HttpLimits | None = None) -> None:
        self.router = router
        self.limits = limits or HttpLimits()
        self.write_buffer = WriteBuffer()
        self.connections: set[ServerConnection] = set()
        self.table = ConnectionTable(self.limits)
        self.queue = FairQueue(self.limits)
        self.head_bytes = 0
        self.body_bytes = 0
        self._listener: Listener | None = None
        self._deadlines: asyncio.Task[None] | None = None
        self._upgrades: asyncio.Future[UpgradeHandler] | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen; returns the port, which the system chooses for port 0."""
        self._listener = Listener(self.table, self.limits, context, self._connect)
        bound = await self._listener.listen(host, port)
        self._deadlines = asyncio.get_running_loop().create_task(self._check_deadlines())
        return bound

    def _connect(self, address: str) -> ServerConnection:
        return ServerConnection(self, address)

    async def stop(self) -> None:
        if self._listener is None or self._deadlines is None:
            return
        self._listener.close()
        self._deadlines.cancel()
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
        if self._upgrades is not None and not self._upgrades.done():
            self._upgrades.cancel()
        elif self._upgrades is not None and self._upgrades.exception() is None:
            await self._upgrades.result().stop(STOP_SECONDS)

    async def upgrade(self, connection: ServerConnection) -> None:
        """Pass a connection to aiohttp, from the first byte of the request that upgrades it."""
        if self._upgrades is None or (self._upgrades.done() and self._upgrades.exception() is not None):
            self._upgrades = asyncio.ensure_future(self._load_upgrades())
        try:
            upgrades = await asyncio.shield(self._upgrades)
            self.write_buffer.flush()
            if not connection.transport.is_closing():
                upgrades.take(connection)
        except BaseException:
            connection.transport.abort()  # nothing can respond, and the client would wait
            raise

    def abort_stalled_responses(self, flow: Flow) -> None:
        """Close connections of a user whose clients do not read, the oldest first, until others may have responses."""
        latest = time.monotonic() - self.limits.stalled_seconds
        stalled = [
            (connection.stalled_response_since(flow), id(connection), connection) for connection in self.connections
        ]
        size = flow.response_bytes
        for since, _, connection in sorted(stalled):
            if since > latest or size <= self.limits.user_response_bytes // 2:
                return
            size -= connection.response_bytes
            connection.evict()

    async def _load_upgrades(self) -> UpgradeHandler:
        """Importing aiohttp takes a good part of a second: the first request that needs it pays, not the start."""
        name = "torchyard.apiserver.http.upgrade_handler"
        module = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)
        handler: UpgradeHandler = module.UpgradeHandler(self.router, self.table)
        return handler

    async def _check_deadlines(self) -> None:
        while True:
            await asyncio.sleep(self.limits.sweep_seconds)
            try:
                self._sweep(time.monotonic())
            except Exception:  # connections without deadlines would be open for ever
                log.exception("deadlines of connections not checked")

    def _sweep(self, now: float) -> None:
        for connection in list(self.connections):
            if connection.deadline < now:
                connection.expire()
        self.queue.expire(now)
        for flow in self.queue.blocked_flows():
            self.abort_stalled_responses(flow)
        if self._upgrades is not None and self._upgrades.done() and self._upgrades.exception() is None:
            self._upgrades.result().remove_closed()
