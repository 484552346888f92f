"""What runs over SPDY: port-forward, and the remote command protocol (`v4.channel.k8s.io` and older)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from torchyard.api.errors import StatusError
from torchyard.apiserver.streams.ends import Connection, Process, Wire, end_of
from torchyard.apiserver.streams.spdy import Session, Stream

_BLOCK = 32 * 1024
_STREAM_SECONDS = 30.0


async def serve_ports(wire: Wire, connect: Callable[[int], Awaitable[Connection]]) -> None:
    """Each connection is a pair of streams with one request id: data, and error, where nothing means success."""
    pairs: dict[str, dict[str, Stream]] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def opened(stream: Stream) -> None:
        pair = pairs.setdefault(stream.headers.get("requestid", str(stream.number // 4)), {})
        pair[stream.headers.get("streamtype", "")] = stream
        if {"data", "error"} <= set(pair):
            task = asyncio.create_task(_forward(pair["data"], pair["error"], connect))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    try:
        with contextlib.suppress(ConnectionError):
            await Session(wire, opened).run()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(data: Stream, error: Stream, connect: Callable[[int], Awaitable[Connection]]) -> None:
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
    wire: Wire, start: Callable[[], Awaitable[Process]], *, streams: frozenset[str], outputs: tuple[str, ...]
) -> None:
    """exec and attach: the client opens the named streams, then the process is started."""
    arrived: dict[str, Stream] = {}
    complete = asyncio.Event()

    async def opened(stream: Stream) -> None:
        arrived[stream.headers.get("streamtype", "")] = stream
        if streams <= set(arrived):
            complete.set()

    session = Session(wire, opened)
    running = asyncio.create_task(session.run())
    working = asyncio.create_task(_work(session, complete, arrived, start, outputs))
    try:
        await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, working):
            task.cancel()
        await asyncio.gather(running, working, return_exceptions=True)


async def _work(
    session: Session,
    complete: asyncio.Event,
    arrived: dict[str, Stream],
    start: Callable[[], Awaitable[Process]],
    outputs: tuple[str, ...],
) -> None:
    async with asyncio.timeout(_STREAM_SECONDS):
        await complete.wait()
    error = arrived["error"]
    try:
        process = await start()
    except StatusError as failed:
        await error.write(json.dumps(failed.body()).encode())
        await session.goodbye()
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
        await error.write(json.dumps(await end_of(process)).encode())
        await error.close()
        # the client closes when it has read the error stream; goodbye lets older ones go too
        await session.goodbye()
        await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await process.close()
