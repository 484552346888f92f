"""Port-forward and remote command (`v4.channel.k8s.io` and older) over SPDY."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.streams.interfaces import Connection, ContainerProcess, Duplex, exit_result
from torchyard.apiserver.streams.spdy import SpdyConnection, SpdyError, SpdyStream

log = logging.getLogger(__name__)

_BLOCK = 32 * 1024
_STREAM_SECONDS = 30.0
# Streams that a client may have open at a time: error, stdin, stdout, stderr and resize; two per forwarded connection.
_MAX_PROCESS_STREAMS = 8
_MAX_PORT_STREAMS = 1024


async def serve_ports(duplex: Duplex, connect: Callable[[int], Awaitable[Connection]]) -> None:
    """Each forwarded connection is a pair of streams with one request id: data, and error (empty for success)."""
    pairs: dict[str, dict[str, SpdyStream]] = {}  # streams whose partner is missing
    tasks: set[asyncio.Task[None]] = set()

    async def on_stream(stream: SpdyStream) -> None:
        request_id = stream.headers.get("requestid", str(stream.stream_id // 4))
        pair = pairs.setdefault(request_id, {})
        pair[stream.headers.get("streamtype", "")] = stream
        if {"data", "error"} <= set(pair):
            del pairs[request_id]
            task = asyncio.create_task(_forward(pair["data"], pair["error"], connect))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    connection = SpdyConnection(duplex, on_stream, max_streams=_MAX_PORT_STREAMS)
    try:
        await connection.run()
    except SpdyError as error:
        log.info("port-forward ended: error=%s", error)
    except ConnectionError as error:
        log.debug("port-forward ended: error=%s", error)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(data: SpdyStream, error: SpdyStream, connect: Callable[[int], Awaitable[Connection]]) -> None:
    with contextlib.suppress(ConnectionError):  # the client is gone
        await _copy_connection(data, error, connect)


async def _copy_connection(
    data: SpdyStream, error: SpdyStream, connect: Callable[[int], Awaitable[Connection]]
) -> None:
    try:
        reader, writer = await connect(_port(data.headers.get("port", "")))
    except (StatusError, OSError) as failure:
        message = failure.message if isinstance(failure, StatusError) else str(failure)
        await error.write(message.encode())
        await error.close()
        await data.close()
        return

    async def client_to_pod() -> None:
        while (chunk := await data.read()) is not None:
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def pod_to_client() -> None:
        while chunk := await reader.read(_BLOCK):
            await data.write(chunk)
        await data.close()

    try:
        await asyncio.gather(client_to_pod(), pod_to_client(), return_exceptions=True)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await data.close()
            await error.close()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65535):
        raise errors.bad_request(f'unable to parse "{text}" as a port')
    return int(text)


async def serve_process(
    duplex: Duplex,
    start: Callable[[], Awaitable[ContainerProcess]],
    *,
    streams: frozenset[str],
    outputs: tuple[str, ...],
) -> None:
    """exec and attach: wait until the client has opened all streams, then start the process."""
    streams_by_type: dict[str, SpdyStream] = {}
    all_open = asyncio.Event()

    async def on_stream(stream: SpdyStream) -> None:
        streams_by_type[stream.headers.get("streamtype", "")] = stream
        if streams <= set(streams_by_type):
            all_open.set()

    connection = SpdyConnection(duplex, on_stream, max_streams=_MAX_PROCESS_STREAMS)
    connection_task = asyncio.create_task(connection.run())
    process_task = asyncio.create_task(_run_process(connection, all_open, streams_by_type, start, outputs))
    try:
        await asyncio.wait([connection_task, process_task], return_when=asyncio.FIRST_COMPLETED)
        if connection_task.done() and isinstance(error := connection_task.exception(), SpdyError):
            log.info("exec ended: error=%s", error)
    finally:
        for task in (connection_task, process_task):
            task.cancel()
        await asyncio.gather(connection_task, process_task, return_exceptions=True)


async def _run_process(
    connection: SpdyConnection,
    all_open: asyncio.Event,
    streams: dict[str, SpdyStream],
    start: Callable[[], Awaitable[ContainerProcess]],
    outputs: tuple[str, ...],
) -> None:
    async with asyncio.timeout(_STREAM_SECONDS):
        await all_open.wait()
    error = streams["error"]
    try:
        process = await start()
    except StatusError as status_error:
        await error.write(json.dumps(status_error.body()).encode())
        await connection.send_goaway()
        return

    async def copy_stdin() -> None:
        while (chunk := await streams["stdin"].read()) is not None:
            await process.write(chunk)
        await process.close_input()

    async def copy_resizes() -> None:
        while (chunk := await streams["resize"].read()) is not None:
            for line in chunk.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    size = json.loads(line)
                    process.resize(width=int(size["Width"]), height=int(size["Height"]))

    async def copy_output(name: str) -> None:
        async for chunk in process.output(name):
            await streams[name].write(chunk)
        await streams[name].close()

    inputs = {"stdin": copy_stdin, "resize": copy_resizes}
    tasks = [asyncio.create_task(work()) for name, work in inputs.items() if name in streams]
    try:
        await asyncio.gather(*(copy_output(name) for name in outputs))
        await error.write(json.dumps(await exit_result(process)).encode())
        await error.close()
        # the client disconnects after it has read the error stream; older clients wait for GOAWAY
        await connection.send_goaway()
        await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await process.close()
