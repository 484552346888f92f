"""The coordinator's port: control streams and HTTP requests share it; the first bytes tell them apart."""

from __future__ import annotations

import asyncio
import time

from torchyard.elastic import wire
from torchyard.elastic.coordinator import admission, http, timers
from torchyard.elastic.coordinator.coordinator import Coordinator, CoordinatorConfig
from torchyard.elastic.coordinator.peer import Peer
from torchyard.elastic.errors import ElasticError


class CoordinatorServer:
    """Serves one coordinator until it is closed."""

    def __init__(self, settings: CoordinatorConfig) -> None:
        self.settings = settings
        self.coordinator = Coordinator(settings)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Start to listen, and return the port."""
        settings = self.settings
        if settings.listener is not None:
            self._server = await asyncio.start_server(self._accept, sock=settings.listener)
        else:
            self._server = await asyncio.start_server(self._accept, settings.host, settings.port, backlog=4096)
        self._tasks = [
            asyncio.create_task(timers.expire_leases(self.coordinator)),
            asyncio.create_task(timers.run_timers(self.coordinator)),
        ]
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._server.close()
        for peer in [*self.coordinator.workers.values(), *self.coordinator.agents.values()]:
            peer.writer.close()
        await asyncio.to_thread(self.coordinator.ledger_writer.close)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            prefix = await reader.readexactly(wire.LENGTH.size)
            if prefix.isalpha() or prefix.strip().isalpha():
                await http.respond(self.coordinator, prefix, reader, writer)
                return
            await self._serve_control_stream(prefix, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ElasticError as error:
            writer.write(wire.encode(wire.Rejection(error.code, error.message, error.hint)))
            self.coordinator.ledger_writer.add_event("Refused", error.message, code=error.code)
        finally:
            if not writer.is_closing():
                writer.close()

    async def _serve_control_stream(
        self, prefix: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        coordinator = self.coordinator
        hello = wire.decode(await reader.readexactly(wire.frame_length(prefix)))
        if not isinstance(hello, wire.Hello):
            raise ElasticError("BadMessage", "the first message of a connection must be Hello")
        admission.admit(hello, job=self.settings.job, token=self.settings.token)
        peer = Peer(hello, writer, time.monotonic())
        peer.send(wire.Welcome(coordinator.ledger.incarnation, self.settings.lease))
        if hello.role == "agent":
            coordinator.add_agent(peer)
            try:
                while True:
                    coordinator.handle_agent(peer, await wire.receive(reader))
            finally:
                coordinator.remove_agent(peer)
        coordinator.add_worker(peer)
        try:
            while True:
                coordinator.handle_worker(peer, await wire.receive(reader))
        finally:
            coordinator.remove_worker(peer, "died (its connection closed)")
