"""What the shim, the zygote and the namespace holder have in common: a socket, a loop, and requests by name."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable

from torchyard.node.shim import wire
from torchyard.node.shim.event_loop import WRITE, EpollLoop


class RequestRefused(Exception):
    """The request cannot be met; its text is the answer."""


class UnixSocketServer:
    """Every public request is a method `on_<op>(channel, message, files)`."""

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
            self.hang_up(channel)
            return
        handler = getattr(self, f"on_{message.get('op')}", None)
        try:
            if handler is None:
                raise RequestRefused(f"unknown request {message.get('op')!r}")
            handler(channel, message, files)
        except (OSError, RequestRefused, KeyError, IndexError) as failed:
            close_all(files)
            self.answer(channel, {"error": str(failed) or type(failed).__name__})

    def answer(self, channel: socket.socket, message: wire.Message, files: list[int] | None = None) -> None:
        try:
            wire.send(channel, message, files or ())
        except OSError:
            self.hang_up(channel)

    def hang_up(self, channel: socket.socket) -> None:
        if channel.fileno() >= 0:
            self.loop.forget(channel.fileno())
            channel.close()

    def on_connect(self, channel: socket.socket, message: wire.Message, files: list[int]) -> None:
        """A connection made from inside this network namespace, handed out as an open socket."""
        kind = socket.SOCK_DGRAM if message.get("kind") == "udp" else socket.SOCK_STREAM
        link = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        number = link.connect_ex((message["host"], message["port"]))
        if number == errno.EINPROGRESS:
            self.loop.watch(link.fileno(), lambda: self._connected(channel, link), WRITE)
        else:
            self._hand_out(channel, link, number)

    def _connected(self, channel: socket.socket, link: socket.socket) -> None:
        self.loop.forget(link.fileno())
        self._hand_out(channel, link, link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _hand_out(self, channel: socket.socket, link: socket.socket, number: int) -> None:
        if number:
            self.answer(channel, {"error": os.strerror(number).lower(), "errno": number})
        else:
            self.answer(channel, {}, [link.fileno()])
        link.close()


def close_others(keep: Iterable[int]) -> None:
    """Let go of everything a forked child has inherited, locks above all."""
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def close_all(files: list[int]) -> None:
    for descriptor in files:
        with contextlib.suppress(OSError):
            os.close(descriptor)
