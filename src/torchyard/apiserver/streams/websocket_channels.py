"""Channel WebSockets (`v5.channel.k8s.io` and older ones): the first byte of a message is its channel.

Before version 4 the error channel carries text instead of a Status, and nothing after a success. The messages of
`base64` protocols are text: the digit of the channel and the data in base64.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.streams.interfaces import Connection, ContainerProcess, Duplex, exit_result

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
V4_BASE64 = "v4.base64.channel.k8s.io"
V1, V1_BASE64 = "channel.k8s.io", "base64.channel.k8s.io"
PROCESS_PROTOCOLS = (V5, V4, V4_BASE64, V1, V1_BASE64)
_BLOCK = 32 * 1024


async def send_result(duplex: Duplex, status: Object, *, protocol: str) -> None:
    """Report how a program ended, or that it could not be started."""
    if protocol in (V5, V4, V4_BASE64):
        await duplex.send(bytes([ERROR]) + json.dumps(status).encode())
    elif status.get("status") != "Success":
        await duplex.send(bytes([ERROR]) + str(status.get("message") or "").encode())


async def serve_process(duplex: Duplex, process: ContainerProcess, *, outputs: tuple[str, ...], protocol: str) -> None:
    """Copy a process's streams until it exits or the client disconnects. Only version 5 can close its input."""
    half_close = protocol == V5
    send_lock = asyncio.Lock()

    async def send(channel: int, data: bytes) -> None:
        async with send_lock:
            await duplex.send(bytes([channel]) + data)

    async def copy(stream: str, channel: int) -> None:
        async for data in process.output(stream):
            await send(channel, data)

    async def finish() -> None:
        await asyncio.gather(*(copy(name, STDOUT if name == "stdout" else STDERR) for name in outputs))
        result = await exit_result(process)
        async with send_lock:
            await send_result(duplex, result, protocol=protocol)

    reading = asyncio.create_task(_read_input(duplex, process, half_close=half_close))
    finishing = asyncio.create_task(finish())
    try:
        await asyncio.wait([reading, finishing], return_when=asyncio.FIRST_COMPLETED)
        if finishing.done():
            with contextlib.suppress(ConnectionError):
                finishing.result()
    finally:
        for task in (reading, finishing):
            task.cancel()
        await asyncio.gather(reading, finishing, return_exceptions=True)
        await process.close()


async def _read_input(duplex: Duplex, process: ContainerProcess, *, half_close: bool) -> None:
    """Returns when the client disconnects."""
    while (message := await duplex.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        # a process may exit, or close its input, before the client notices
        with contextlib.suppress(OSError):
            if channel == STDIN and data:
                await process.write(data)
            elif channel == RESIZE:
                _resize(process, data)
            elif channel == CLOSE and half_close and data[:1] == b"\0":
                await process.close_input()


def _resize(process: ContainerProcess, data: bytes) -> None:
    try:
        size = json.loads(data)
        process.resize(width=int(size["Width"]), height=int(size["Height"]))
    except (ValueError, KeyError, TypeError):
        return


async def serve_ports(duplex: Duplex, ports: list[int], connect: Callable[[int], Awaitable[Connection]]) -> None:
    """For Python clients: channels 2i and 2i+1 are data and error of port i; both start with its number."""
    send_lock = asyncio.Lock()

    async def send(channel: int, data: bytes) -> None:
        async with send_lock:
            await duplex.send(bytes([channel]) + data)

    connections: list[Connection | None] = []
    tasks: list[asyncio.Task[None]] = []
    for number, port in enumerate(ports):
        port_bytes = struct.pack("<H", port)
        await send(2 * number, port_bytes)
        await send(2 * number + 1, port_bytes)
        try:
            connection: Connection | None = await connect(port)
        except StatusError as error:
            connection = None
            await send(2 * number + 1, error.message.encode())
        connections.append(connection)
        if connection:
            tasks.append(asyncio.create_task(_copy_port(connection[0], lambda data, to=2 * number: send(to, data))))  # type: ignore[misc]
    try:
        while (message := await duplex.receive()) is not None:
            target = (
                connections[message[0] // 2]
                if message and message[0] % 2 == 0 and message[0] // 2 < len(connections)
                else None
            )
            if target and len(message) > 1:
                target[1].write(message[1:])
                await target[1].drain()
    except ConnectionError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for open_connection in connections:
            if open_connection:
                open_connection[1].close()


async def _copy_port(reader: asyncio.StreamReader, send: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await reader.read(_BLOCK):
        await send(data)
