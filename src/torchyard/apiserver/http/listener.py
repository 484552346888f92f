"""The listening sockets: accept connections, shake hands, and keep within the limits.

The sockets are accepted here and not by the event loop, which at the limit of open files would accept and drop every
connection without a word.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable

from torchyard.apiserver.http.connection_table import ConnectionTable
from torchyard.apiserver.http.limits import HttpLimits

log = logging.getLogger(__name__)

_BACKLOG = 4096
# Connections accepted in one go, so that a flood of them does not take the event loop for long.
_MAX_ACCEPTS = 16
_RETRY_SECONDS = 0.05
_LOG_SECONDS = 10.0
_SHUTDOWN_SECONDS = 5.0
# File descriptors that are left for everything but connections, at the least.
_SPARE_FILES = 16
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake:
    """A connection whose TLS handshake is not complete."""

    user_name = ""
    is_idle = True

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self.address = address
        self.idle_since = time.monotonic()
        self._socket = accepted

    def evict(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # the event loop owns the socket; it sees the end and closes it
        except OSError as error:
            log.debug("connection is closed already: address=%s error=%s", self.address, error)


class Listener:
    def __init__(
        self,
        table: ConnectionTable,
        limits: HttpLimits,
        context: ssl.SSLContext | None,
        connect: Callable[[str], asyncio.BaseProtocol],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._table = table
        self._limits = limits
        self._context = context
        self._connect = connect
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._logged_at = float("-inf")
        self._max_file = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES

    async def listen(self, host: str, port: int) -> int:
        """Bind and listen on every address of the host; returns the port of the first."""
        infos = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(_BACKLOG)
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._close_sockets()
        for handshake in list(self._handshakes):
            handshake.cancel()

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            self._admit(accepted, str(peer[0]) if peer else "")

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Out of files or memory: close a connection that nobody misses, and accept again in a moment."""
        if error.errno not in _NO_RESOURCES:
            log.warning("accept failed: error=%s", error)
            return
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning("accept failed, will retry: error=%s connections=%d", error, len(self._table.peers))
        self._table.make_room(is_short_of_files=True)
        self._loop.remove_reader(listening)
        self._loop.call_later(_RETRY_SECONDS, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        # The kernel assigns the lowest free number, so a high one means that few are left.
        is_short_of_files = accepted.fileno() >= self._max_file
        if not self._table.make_room(is_short_of_files=is_short_of_files):
            self._table.refuse(address)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake = Handshake(accepted, address)
        self._table.add(handshake)
        task = self._loop.create_task(self._open(accepted, handshake))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _open(self, accepted: socket.socket, handshake: Handshake) -> None:
        seconds = self._limits.handshake_seconds if self._context else None
        shutdown = _SHUTDOWN_SECONDS if self._context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._connect(handshake.address),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=shutdown,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("handshake failed: address=%s error=%s", handshake.address, error)
            accepted.close()
        finally:
            self._table.remove(handshake)
