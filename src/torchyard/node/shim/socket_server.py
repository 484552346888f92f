"""What shim, zygote and namespace holder have in common: a unix socket, an event loop, and requests by name."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING

from torchyard.node.shim import wire
from torchyard.node.shim.event_loop import WRITE, EpollLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torchyard.node.shim.record_types import SocketRequest


class RequestRefused(Exception):
    """The request cannot be carried out; text and code are the reply."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class UnixSocketServer:
    """Every request is a method `on_<op>(channel, message, files)`."""

    def __init__(self, directory: str, name: str) -> None:
        self.loop = EpollLoop()
        self._server = wire.listen(directory, name)
        self.loop.watch(self._server.fileno(), self._accept)

    def close(self) -> None:
        self._server.close()
        self.loop.stop()

    def _accept(self) -> None:
        channel, _ = self._server.accept()
        self.loop.watch(channel.fileno(), lambda: self._serve(channel))

    def _serve(self, channel: socket.socket) -> None:
        try:
            message, files = wire.receive(channel)
        except (OSError, ValueError):
            message, files = None, []
        if message is None:
            self.close_channel(channel)
            return
        operation = message.get("op")
        handler = getattr(self, f"on_{operation}", None)
        try:
            if handler is None:
                raise RequestRefused(f"unknown request {operation!r}", wire.UNKNOWN_REQUEST)
            handler(channel, message, files)
        except (OSError, RequestRefused, KeyError, IndexError) as error:
            close_all(files)
            self.reply(channel, {"error": str(error) or type(error).__name__, "code": _code_of(error)})

    def reply(self, channel: socket.socket, message: Mapping[str, object], files: list[int] | None = None) -> None:
        try:
            wire.send(channel, message, files or ())
        except OSError:
            self.close_channel(channel)

    def close_channel(self, channel: socket.socket) -> None:
        if channel.fileno() >= 0:
            self.loop.unwatch(channel.fileno())
            channel.close()

    def on_connect(self, channel: socket.socket, message: SocketRequest, files: list[int]) -> None:
        """Connect from inside this network namespace; the reply carries the open socket."""
        kind = socket.SOCK_DGRAM if message.get("kind") == "udp" else socket.SOCK_STREAM
        connection = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        error_number = connection.connect_ex((message["host"], message["port"]))
        if error_number == errno.EINPROGRESS:
            self.loop.watch(connection.fileno(), lambda: self._connected(channel, connection), WRITE)
        else:
            self._send_connection(channel, connection, error_number)

    def _connected(self, channel: socket.socket, connection: socket.socket) -> None:
        self.loop.unwatch(connection.fileno())
        error_number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._send_connection(channel, connection, error_number)

    def _send_connection(self, channel: socket.socket, connection: socket.socket, error_number: int) -> None:
        if error_number:
            text = os.strerror(error_number).lower()
            self.reply(channel, {"error": text, "code": wire.SYSTEM_ERROR, "errno": error_number})
        else:
            self.reply(channel, {}, [connection.fileno()])
        connection.close()


def _code_of(error: Exception) -> str:
    if isinstance(error, RequestRefused):
        return error.code
    return wire.SYSTEM_ERROR if isinstance(error, OSError) else wire.BAD_REQUEST


def close_inherited(keep: Iterable[int]) -> None:
    """Close every file a forked child has inherited but `keep` and the standard streams, locks above all."""
    keep_open = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep_open:
            with contextlib.suppress(OSError):
                os.close(int(name))


def close_all(files: list[int]) -> None:
    for descriptor in files:
        with contextlib.suppress(OSError):
            os.close(descriptor)
