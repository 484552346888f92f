"""What runs over SPDY: port-forward, and the remote command protocol (`v4.channel.k8s.io` and older)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from torchyard.api.errors import StatusError
from torchyard.apiserver.streams.interfaces import Connection, ContainerProcess, Duplex, exit_result
from torchyard.apiserver.streams.spdy import SpdyConnection, SpdyStream

_BLOCK = 32 * 1024
_STREAM_SECONDS = 30.0


async def serve_ports(duplex: Duplex, connect: Callable[[int], Awaitable[Connection]]) -> None:
    """Each connection is a pair of streams with one request id: data, and error, where nothing means success."""
    pairs: dict[str, dict[str, SpdyStream]] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def opened(stream: SpdyStream) -> None:
        pair = pairs.setdefault(stream.headers.get("requestid", str(stream.stream_id // 4)), {})
        pair[stream.headers.get("streamtype", "")] = stream
        if {"data", "error"} <= set(pair):
            task = asyncio.create_task(_forward(pair["data"], pair["error"], connect))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    try:
        with contextlib.suppress(ConnectionError):
            await SpdyConnection(duplex, opened).run()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(data: SpdyStream, error: SpdyStream, connect: Callable[[int], Awaitable[Connection]]) -> None:
    port = int(data.headers["port"])
    try:
        reader, writer = await connect(port)
    except StatusError as failed:
        await error.write(failed.message.encode())
        await error.close()
        await data.close()
        return

    async def up() -> None:
        while (piece := await data.read()) is not None:
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def down() -> None:
        while piece := await reader.read(_BLOCK):
            await data.write(piece)
        await data.close()

    try:
        await asyncio.gather(up(), down(), return_exceptions=True)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await data.close()
            await error.close()


async def serve_process(
    duplex: Duplex,
    start: Callable[[], Awaitable[ContainerProcess]],
    *,
    streams: frozenset[str],
    outputs: tuple[str, ...],
) -> None:
    """exec and attach: the client opens the named streams, then the process is started."""
    arrived: dict[str, SpdyStream] = {}
    complete = asyncio.Event()

    async def opened(stream: SpdyStream) -> None:
        arrived[stream.headers.get("streamtype", "")] = stream
        if streams <= set(arrived):
            complete.set()

    session = SpdyConnection(duplex, opened)
    running = asyncio.create_task(session.run())
    working = asyncio.create_task(_work(session, complete, arrived, start, outputs))
    try:
        await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, working):
            task.cancel()
        await asyncio.gather(running, working, return_exceptions=True)


async def _work(
    session: SpdyConnection,
    complete: asyncio.Event,
    arrived: dict[str, SpdyStream],
    start: Callable[[], Awaitable[ContainerProcess]],
    outputs: tuple[str, ...],
) -> None:
    async with asyncio.timeout(_STREAM_SECONDS):
        await complete.wait()
    error = arrived["error"]
    try:
        process = await start()
    except StatusError as failed:
        await error.write(json.dumps(failed.body()).encode())
        await session.send_goaway()
        return

    async def feed() -> None:
        while (piece := await arrived["stdin"].read()) is not None:
            await process.write(piece)
        await process.close_input()

    async def sizes() -> None:
        while (piece := await arrived["resize"].read()) is not None:
            for line in piece.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    size = json.loads(line)
                    process.resize(width=int(size["Width"]), height=int(size["Height"]))

    async def copy(name: str) -> None:
        async for piece in process.output(name):
            await arrived[name].write(piece)
        await arrived[name].close()

    inputs = {"stdin": feed, "resize": sizes}
    tasks = [asyncio.create_task(work()) for name, work in inputs.items() if name in arrived]
    try:
        await asyncio.gather(*(copy(name) for name in outputs))
        await error.write(json.dumps(await exit_result(process)).encode())
        await error.close()
        # the client closes when it has read the error stream; goodbye lets older ones go too
        await session.send_goaway()
        await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await process.close()
