"""The protocol of the unix sockets: one message is one SOCK_SEQPACKET packet of JSON, with open files beside it.

A request names its operation in `op`. A reply with an `error` has a `code`, by which programs tell errors apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_MESSAGE = 128 * 1024
MAX_FILES = 200  # the kernel allows 253
_DESCRIPTOR = struct.Struct("i")

# Codes of error replies.
ALREADY_RUNNING = "AlreadyRunning"  # the pod has a shim, or the container a running attempt
NOT_RUNNING = "NotRunning"  # the container does not run, or the pod is being stopped
NO_CONFIG = "NoConfig"  # the pod or the attempt was not written to disk
MOUNT_REFUSED = "MountRefused"  # a source is not what the pod may mount; the container was not started
UNKNOWN_REQUEST = "UnknownRequest"
SYSTEM_ERROR = "SystemError"  # the kernel refused; `errno` says why where it is known
BAD_REQUEST = "BadRequest"

Message = dict[str, Any]


def send(channel: socket.socket, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    if files:
        socket.send_fds(channel, [data], list(files))
    else:
        channel.send(data)


def receive_files(channel: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Data and open files, which no program that this process starts inherits.

    Not `socket.recv_fds`: it does not pass its flags on, so that the files would be inherited.
    """
    space = socket.CMSG_SPACE(count * _DESCRIPTOR.size)
    data, messages, _, _ = channel.recvmsg(size, space, socket.MSG_CMSG_CLOEXEC)
    files: list[int] = []
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(content) - len(content) % _DESCRIPTOR.size
            files += [number for (number,) in _DESCRIPTOR.iter_unpack(content[:whole])]
    return data, files


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its files; None when the other side closed the connection."""
    data, files = receive_files(channel, MAX_MESSAGE, MAX_FILES)
    if not data:
        return None, files
    message = json.loads(data)
    return (message if isinstance(message, dict) else None), files


def _short_path(directory: str, name: str) -> tuple[int, str]:
    """A path that fits into the 108 bytes of a socket address, however deep the directory lies."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return descriptor, f"/proc/self/fd/{descriptor}/{name}"


def listen(directory: str, name: str) -> socket.socket:
    descriptor, path = _short_path(directory, name)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        os.chmod(f"{directory}/{name}", 0o600)
        server.listen(64)
    finally:
        os.close(descriptor)
    return server


def connect(directory: str, name: str, *, timeout: float | None = None) -> socket.socket:
    descriptor, path = _short_path(directory, name)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    client.settimeout(timeout)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    finally:
        os.close(descriptor)
    return client
