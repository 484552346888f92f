"""The coordinator's port: control streams and HTTP requests share it; the first bytes tell them apart.

Nothing that a connection sends ends more than this connection, and before it has shown the token of the job it can
neither change anything nor occupy much memory.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback

from torchyard.elastic import wire
from torchyard.elastic.coordinator import admission, http, timers
from torchyard.elastic.coordinator.coordinator import Coordinator, CoordinatorConfig
from torchyard.elastic.coordinator.handshakes import HandshakeLimit, Handshakes
from torchyard.elastic.coordinator.peer import Peer
from torchyard.elastic.errors import ElasticError

READ_BUFFER = 1 << 14
"""How much of a connection is buffered before it is read; a larger frame is buffered while it is read."""


class CoordinatorServer:
    """Serves one coordinator until it is closed."""

    def __init__(self, settings: CoordinatorConfig) -> None:
        self.settings = settings
        self.coordinator = Coordinator(settings)
        self._tasks: list[asyncio.Task[None]] = []
        self._handshakes = Handshakes()
        self._writers: set[asyncio.StreamWriter] = set()
        self._closed = False

    async def start(self) -> int:
        """Start to listen, and return the port."""
        settings = self.settings
        if settings.listener is not None:
            self._server = await asyncio.start_server(
                self._accept, sock=settings.listener, backlog=4096, limit=READ_BUFFER
            )
        else:
            self._server = await asyncio.start_server(
                self._accept, settings.host, settings.port, backlog=4096, limit=READ_BUFFER
            )
        self._tasks = [
            asyncio.create_task(timers.expire_leases(self.coordinator)),
            asyncio.create_task(timers.run_timers(self.coordinator)),
        ]
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await self._stop_accepting()
        for writer in [*self._writers]:
            writer.close()
        await asyncio.to_thread(self.coordinator.ledger_writer.close)

    async def _stop_accepting(self) -> None:
        """Close the listeners.

        asyncio loses a connection that it has accepted but not yet handed over when its server closes: it stays open,
        and the worker at the other end waits for ever. So what is accepted is handed over first.
        """
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self._closed:  # a connection of the backlog may arrive after that
                await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, HandshakeLimit):
            pass
        except ElasticError as error:
            writer.write(wire.encode(wire.Rejection(error.code, wire.cut(error.message), wire.cut(error.hint))))
        except Exception:
            sys.stderr.write(f"connection failed: error={traceback.format_exc()}\n")
        finally:
            self._writers.discard(writer)
            if not writer.is_closing():
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._handshakes.authenticating(writer):
            prefix = await reader.readexactly(wire.LENGTH.size)
            request = None
            if prefix.strip().isalpha():
                request = await http.authenticate(self.settings.token, prefix, reader, writer)
            else:
                await self._authenticate(prefix, reader)
        if request is not None:
            await http.respond(self.coordinator, request, reader, writer)
        elif not prefix.strip().isalpha():
            await self._serve_control_stream(reader, writer)

    async def _authenticate(self, prefix: bytes, reader: asyncio.StreamReader) -> None:
        settings = self.settings
        try:
            first = wire.decode(await reader.readexactly(wire.frame_length(prefix, wire.LARGEST_FIRST_FRAME)))
            admission.admit(first, job=settings.job, token=settings.token)
        except ElasticError as error:
            if (text := self._handshakes.report(error.message)) is not None:
                self.coordinator.ledger_writer.add_event("Refused", text, code=error.code)
            raise

    async def _serve_control_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        coordinator = self.coordinator
        try:
            hello = await wire.receive(reader)
            if not isinstance(hello, wire.Hello):
                raise ElasticError("BadMessage", "the second message of a connection must be Hello")
            admission.check_names(hello)
            if self._closed:
                return
            peer = Peer(hello, writer, time.monotonic())
            peer.send(wire.Welcome(coordinator.ledger.incarnation, self.settings.lease))
            if hello.role == "agent":
                await self._serve_agent(peer, reader)
            else:
                await self._serve_worker(peer, reader)
        except ElasticError as error:
            coordinator.ledger_writer.add_event("Refused", error.message, code=error.code)
            raise

    async def _serve_agent(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        self.coordinator.add_agent(peer)
        try:
            while True:
                self.coordinator.handle_agent(peer, await wire.receive(reader))
        finally:
            self.coordinator.remove_agent(peer)

    async def _serve_worker(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        self.coordinator.add_worker(peer)
        try:
            while True:
                self.coordinator.handle_worker(peer, await wire.receive(reader))
        finally:
            self.coordinator.remove_worker(peer, "died (its connection closed)")
