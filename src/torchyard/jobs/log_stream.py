"""The lines of one container's log, in order, also across broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from torchyard.api.gvr import PODS
from torchyard.core.run.line_splitter import LineSplitter, LogLine
from torchyard.kube.client import Client, Unreachable

RETRY_SECONDS = 1.0


async def follow_lines(
    client: Client,
    pod: str,
    namespace: str,
    container: str,
    *,
    since_seconds: int | None = None,
    tail_lines: int | None = None,
    timestamps: bool = False,
) -> AsyncGenerator[LogLine, None]:
    """Yield every line until the container ends. After a broken connection, continue where it broke.

    With `tail_lines` or `since_seconds`, begin with the last lines; how many bytes were before them is unknown, so what
    a broken connection is followed by begins with the last lines again, after a line that says so.
    """
    received, lines = 0, LineSplitter()
    while True:
        skip = received
        try:
            pieces = client.logs(
                PODS,
                pod,
                namespace,
                container=container,
                follow=True,
                since_seconds=since_seconds,
                tail_lines=tail_lines,
                timestamps=timestamps,
            )
            async with aclosing(pieces) as stream:
                async for piece in stream:
                    new = piece[skip:]
                    skip = max(0, skip - len(piece))
                    received += len(new)
                    for line in lines.of(new):
                        yield line
            break
        except Unreachable:
            await asyncio.sleep(RETRY_SECONDS)
            if tail_lines is not None or since_seconds is not None:
                received, lines = 0, LineSplitter()
                again = f"last {tail_lines} lines" if tail_lines is not None else f"lines of the last {since_seconds} s"
                yield LogLine(f"-- the connection broke: the {again} again --")
    if lines.rest:
        yield LogLine(lines.rest)


async def cancel(task: asyncio.Future[None]) -> None:
    """Cancel a stream or another task, and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def read_lines(
    client: Client,
    pod: str,
    namespace: str,
    container: str,
    *,
    previous: bool = False,
    since_seconds: int | None = None,
    tail_lines: int | None = None,
    timestamps: bool = False,
) -> AsyncGenerator[LogLine, None]:
    """Yield the lines that the container has written so far."""
    lines = LineSplitter()
    pieces = client.logs(
        PODS,
        pod,
        namespace,
        container=container,
        previous=previous,
        since_seconds=since_seconds,
        tail_lines=tail_lines,
        timestamps=timestamps,
    )
    async with aclosing(pieces) as stream:
        async for piece in stream:
            for line in lines.of(piece):
                yield line
    if lines.rest:
        yield LogLine(lines.rest)
