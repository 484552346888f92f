"""The streams of a container over WebSockets: exec, attach and port-forward, as kubectl uses them.

The first byte of a message is its channel. Version 5 of the protocol can close the input, which version 4 cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.kube.http import HttpTransport, WebSocket

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5 = "v5.channel.k8s.io"
_PROTOCOLS = (V5, "v4.channel.k8s.io")
_BLOCK = 32 * 1024

Write = Callable[[int, bytes], None]  # channel and data


@dataclass(frozen=True, slots=True)
class ContainerAddress:
    namespace: str
    pod: str
    container: str = ""


async def run_process(
    transport: HttpTransport,
    address: ContainerAddress,
    command: list[str],
    write: Write,
    *,
    stdin: AsyncIterator[bytes] | None = None,
    tty: bool = False,
    sizes: AsyncIterator[tuple[int, int]] | None = None,
) -> int:
    """Run a command in a container, or attach to its first process without one; return the exit code.

    `sizes` are the sizes of the terminal as (columns, rows).
    """
    query = [("command", word) for word in command]
    query += [("stdin", "true")] if stdin is not None else []
    query += [("stdout", "true"), *([("tty", "true")] if tty else [("stderr", "true")])]
    query += [("container", address.container)] if address.container else []
    subresource = "exec" if command else "attach"
    path = f"{PODS.path(address.namespace, address.pod, subresource)}?{urlencode(query)}"
    async with transport.websocket(path, _PROTOCOLS) as socket:
        senders: list[asyncio.Future[None]] = []
        if stdin is not None:
            senders.append(asyncio.ensure_future(_send_input(socket, stdin)))
        if sizes is not None:
            senders.append(asyncio.ensure_future(_send_sizes(socket, sizes)))
        receiver = asyncio.ensure_future(_receive(socket, write))
        try:
            code = await _received(receiver, senders)
        finally:
            receiver.cancel()
            for sender in senders:
                sender.cancel()
            await asyncio.gather(receiver, *senders, return_exceptions=True)
    if code is None and command:
        raise YardError("the connection ended before the command did", code="Unreachable")
    return code or 0  # without a report, the process that was attached to has ended


async def _received(receiver: asyncio.Future[int | None], senders: list[asyncio.Future[None]]) -> int | None:
    """What the receiver returns. Raises the error of a sender, without which the command would wait for its input."""
    pending: set[asyncio.Future[Any]] = {receiver, *senders}
    while not receiver.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {receiver} if not receiver.done() else ():
            # where the connection has ended, the receiver reports how
            if (error := task.exception()) and not isinstance(error, ConnectionError):
                raise error
    return receiver.result()


async def _send_input(socket: WebSocket, stdin: AsyncIterator[bytes]) -> None:
    async for data in stdin:
        for start in range(0, len(data), _BLOCK):
            await socket.send(bytes([STDIN]) + data[start : start + _BLOCK])
    if socket.protocol == V5:
        await socket.send(bytes([CLOSE, STDIN]))


async def _send_sizes(socket: WebSocket, sizes: AsyncIterator[tuple[int, int]]) -> None:
    async for columns, rows in sizes:
        await socket.send(bytes([RESIZE]) + json.dumps({"Width": columns, "Height": rows}).encode())


async def _receive(socket: WebSocket, write: Write) -> int | None:
    """The exit code; None if the connection ends without a report."""
    async for message in socket.messages():
        channel, data = (message[0], message[1:]) if message else (STDOUT, b"")
        if channel == ERROR:
            return _exit_code(data)
        if data:
            write(channel, data)
    return None


def _exit_code(data: bytes) -> int:
    """The exit code that a Status reports. Raises YardError if the command could not be started."""
    status = json.loads(data)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise YardError(status.get("message") or "the command could not be run", code=status.get("reason") or "Error")


async def forward_connection(
    transport: HttpTransport,
    address: ContainerAddress,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copy one connection to a port of a pod, until either side closes it."""
    path = f"{PODS.path(address.namespace, address.pod, 'portforward')}?{urlencode({'ports': port})}"
    try:
        async with transport.websocket(path, _PROTOCOLS[1:]) as socket:
            sending = asyncio.ensure_future(_send_connection(socket, reader))
            try:
                await _receive_connection(socket, port, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _send_connection(socket: WebSocket, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_BLOCK):
        await socket.send(b"\0" + data)
    await socket.close()


async def _receive_connection(socket: WebSocket, port: int, writer: asyncio.StreamWriter) -> None:
    announced: set[int] = set()  # the first message of a channel is the number of the port
    async for message in socket.messages():
        channel, data = message[0], message[1:]
        if channel not in announced:
            announced.add(channel)
            data = data[2:]
        if channel == 1 and data:
            raise YardError(f"port {port}: {data.decode(errors='replace')}", code="PortForwardFailed")
        if data:
            writer.write(data)
            await writer.drain()
