"""One message, one packet: JSON with open files beside it, over a unix SOCK_SEQPACKET socket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 128 * 1024
MAX_FILES = 4

Message = dict[str, Any]


def send(channel: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    if files:
        socket.send_fds(channel, [data], list(files))
    else:
        channel.send(data)


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its files; None when the other side is gone."""
    data, files, _, _ = socket.recv_fds(channel, MAX_MESSAGE, MAX_FILES, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None, files
    message = json.loads(data)
    return (message if isinstance(message, dict) else None), files


def _near(directory: str, name: str) -> tuple[int, str]:
    """A path to a socket that fits into its 108 bytes, however deep the directory lies."""
    holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return holder, f"/proc/self/fd/{holder}/{name}"


def listen(directory: str, name: str) -> socket.socket:
    holder, path = _near(directory, name)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        os.chmod(f"{directory}/{name}", 0o600)
        server.listen(64)
    finally:
        os.close(holder)
    return server


def connect(directory: str, name: str, *, timeout: float | None = None) -> socket.socket:
    holder, path = _near(directory, name)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    client.settimeout(timeout)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    finally:
        os.close(holder)
    return client
