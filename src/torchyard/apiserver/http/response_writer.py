"""Writes the responses of one connection: small ones at once, large ones and streams as fast as the client reads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from math import inf

from torchyard.apiserver.http.fair_queue import ConnectionShare, FairQueue, Flow
from torchyard.apiserver.http.json_layout import NEWLINE
from torchyard.apiserver.http.request_head import RequestHead
from torchyard.apiserver.http.response_head import content_length_lines, format_json_response, format_response_head
from torchyard.apiserver.http.write_buffer import WriteBuffer
from torchyard.apiserver.request.response import JSON, Response

# A body up to this size is copied behind its head, so that both leave in one write.
SINGLE_WRITE_BYTES = 1 << 16


class ResponseWriter:
    def __init__(
        self, transport: asyncio.Transport, write_buffer: WriteBuffer, queue: FairQueue, share: ConnectionShare
    ) -> None:
        self._transport = transport
        self._send = write_buffer.send
        self._flush = write_buffer.flush
        self._queue = queue
        self._share = share
        self._may_write: asyncio.Future[None] | None = None  # while the client reads slower than the server writes
        self.stalled_since = inf
        self.response_bytes = 0  # of a large response that is being written
        self.is_streaming = False

    def pause(self) -> None:
        """The client reads slower than the server writes."""
        self._may_write = asyncio.get_running_loop().create_future()
        self.stalled_since = time.monotonic()

    def resume(self) -> None:
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._may_write = None
        self.stalled_since = inf

    @property
    def is_paused(self) -> bool:
        return self._may_write is not None

    async def wait_for_client(self) -> None:
        """Wait until the client has read most of what was written."""
        if self._may_write is not None:
            await self._may_write

    def write_json(self, body: bytes) -> None:
        """Respond with 200 and an object of at most SINGLE_WRITE_BYTES, to a request that keeps the connection."""
        self._send(self._transport, format_json_response(body))

    def reject(self, response: Response) -> None:
        """Respond to a request whose body was not read."""
        assert isinstance(response.body, bytes)
        body = response.body + NEWLINE if response.content_type == JSON else response.body
        lines = (*content_length_lines(response, len(body)), "Connection: close")
        self._send(self._transport, format_response_head(response, *lines) + body)

    async def write(
        self,
        head: RequestHead,
        response: Response,
        body: bytes,
        tail: bytes,
        *,
        keep_alive: bool,
        flow: Flow | None,
    ) -> None:
        """Write a whole body, `tail` behind it."""
        lines = content_length_lines(response, len(body) + len(tail))
        if not keep_alive:
            lines = (*lines, "Connection: close")
        elif head.is_http_1_0:
            lines = (*lines, "Connection: keep-alive")
        start = format_response_head(response, *lines)
        if head.is_http_1_0:
            start = b"HTTP/1.0" + start[8:]
        if head.method == "HEAD":
            body = tail = b""
        if len(body) <= SINGLE_WRITE_BYTES:
            self._send(self._transport, start + body + tail)
            return
        self._flush()
        self._transport.write(start)
        self.response_bytes = len(body)
        if flow is not None:
            self._queue.hold_response(flow, self.response_bytes)
        try:
            await self._write_pieces(body, flow)
            if tail:
                self._transport.write(tail)
        finally:
            if flow is not None:
                self._queue.hold_response(flow, -self.response_bytes)

    async def _write_pieces(self, body: bytes, flow: Flow | None) -> None:
        """Each piece after the client has read the one before: TLS would hold a second copy of all that is written.

        Encrypting megabytes takes as long as handling many requests, so each piece waits for its turn, too.
        """
        queue, share, view = self._queue, self._share, memoryview(body)
        for at in range(0, len(body), SINGLE_WRITE_BYTES):
            if self._may_write is not None:
                await self._may_write
            start = time.monotonic()
            if flow is not None and not queue.start(flow, share, start):
                await queue.wait(flow, share, is_new=False)
                start = time.monotonic()
            if self._transport.is_closing():
                return
            self._transport.write(view[at : at + SINGLE_WRITE_BYTES])
            if flow is not None:
                queue.finish(flow, share, time.monotonic() - start)

    async def stream(
        self,
        head: RequestHead,
        response: Response,
        body: AsyncGenerator[bytes, None],
        *,
        keep_alive: bool,
        flow: Flow | None,
    ) -> None:
        """Write chunks as they come until the stream or the client ends."""
        self.is_streaming = True
        send, transport = self._send, self._transport
        length = response.proxied.length if response.proxied is not None else None
        is_chunked = not head.is_http_1_0 and length is None
        async with contextlib.aclosing(body) as chunks:
            lines = ("Transfer-Encoding: chunked",) if is_chunked else ()
            if length is not None:
                lines = (f"Content-Length: {length}",)
            if not keep_alive:
                lines = (*lines, "Connection: close")
            start = format_response_head(response, *lines)
            send(transport, b"HTTP/1.0" + start[8:] if head.is_http_1_0 else start)
            async for chunk in chunks:
                if len(chunk) > SINGLE_WRITE_BYTES:
                    await self._write_large_chunk(chunk, flow, is_chunked=is_chunked)
                elif chunk:
                    send(transport, b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
                if self._may_write is not None:
                    await self._may_write
            if is_chunked:
                send(transport, b"0\r\n\r\n")

    async def _write_large_chunk(self, chunk: bytes, flow: Flow | None, *, is_chunked: bool) -> None:
        self._flush()
        if is_chunked:
            self._transport.write(b"%x\r\n" % len(chunk))
        await self._write_pieces(chunk, flow)
        if is_chunked:
            self._transport.write(b"\r\n")
