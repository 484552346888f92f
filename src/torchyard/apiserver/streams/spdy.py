"""The server side of SPDY/3.1 as Kubernetes clients use it: frames, header blocks, streams.

Clients (moby/spdystream) have no flow control, so a stream with a slow reader blocks its whole connection.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable

from torchyard.apiserver.streams.interfaces import Duplex
from torchyard.apiserver.streams.spdy_dictionary import DICTIONARY

_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 1
_MAX_FRAME = 1 << 24
_QUEUE_SIZE = 64
_BLOCK = 32 * 1024


class SpdyStream:
    """One stream of a connection; the client opens it with headers."""

    def __init__(self, connection: SpdyConnection, stream_id: int, headers: dict[str, str]) -> None:
        self._connection, self.stream_id, self.headers = connection, stream_id, headers
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE_SIZE)
        self._closed = False

    async def read(self) -> bytes | None:
        """The next chunk; None at the end."""
        return await self._queue.get()

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            await self._connection.send_data(self.stream_id, data[start : start + _BLOCK])

    async def close(self) -> None:
        """Close the write side."""
        if not self._closed:
            self._closed = True
            await self._connection.send_data(self.stream_id, b"", flags=_FIN)

    async def feed(self, data: bytes | None) -> None:
        await self._queue.put(data)

    def feed_eof(self) -> None:
        """The connection has ended: wake up a waiting reader."""
        while self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)


class SpdyConnection:
    """A SPDY connection: `run` it until it ends. `on_stream` is called for every new stream and must not block."""

    def __init__(self, duplex: Duplex, on_stream: Callable[[SpdyStream], Awaitable[None]]) -> None:
        self._duplex, self._on_stream = duplex, on_stream
        self._buffer = b""
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, SpdyStream] = {}
        self._send_lock = asyncio.Lock()

    async def run(self) -> None:
        try:
            while (data := await self._duplex.receive()) is not None:
                self._buffer += data
                while (frame := self._next_frame()) is not None:
                    if not await self._handle_frame(*frame):
                        return
        finally:
            for stream in self._streams.values():
                stream.feed_eof()

    def _next_frame(self) -> tuple[int, int, bytes] | None:
        if len(self._buffer) < 8:
            return None
        first, second = struct.unpack_from(">II", self._buffer)
        size = second & 0xFFFFFF
        if len(self._buffer) < 8 + size:
            return None
        payload, self._buffer = self._buffer[8 : 8 + size], self._buffer[8 + size :]
        return first, second >> 24, payload

    async def _handle_frame(self, first: int, flags: int, payload: bytes) -> bool:
        """Handle one frame; returns False after GOAWAY."""
        if not first >> 31:
            stream = self._streams.get(first)
            if stream:
                if payload:
                    await stream.feed(payload)
                if flags & _FIN:
                    await stream.feed(None)
            return True
        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            await self._open(flags, payload)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(_stream_id(payload), None)
            if stream:
                stream.feed_eof()
        elif kind == _PING:
            await self._send_control(_PING, payload)
        return kind != _GOAWAY

    async def _open(self, flags: int, payload: bytes) -> None:
        stream_id = _stream_id(payload)
        stream = SpdyStream(self, stream_id, self._headers(payload[10:]))
        self._streams[stream_id] = stream
        if flags & _FIN:
            await stream.feed(None)
        await self._send_control(_SYN_REPLY, struct.pack(">I", stream_id) + self._header_block({}))
        await self._on_stream(stream)

    def _headers(self, block: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(block)
        (count,) = struct.unpack_from(">I", raw)
        offset, fields = 4, []
        for _ in range(2 * count):
            (size,) = struct.unpack_from(">I", raw, offset)
            fields.append(raw[offset + 4 : offset + 4 + size].decode("latin-1"))
            offset += 4 + size
        return {name.lower(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}

    def _header_block(self, headers: dict[str, str]) -> bytes:
        raw = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for word in (name.encode(), value.encode()):
                raw += struct.pack(">I", len(word)) + word
        return self._deflate.compress(raw) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _send_control(self, kind: int, payload: bytes) -> None:
        async with self._send_lock:
            await self._duplex.send(struct.pack(">HHI", _VERSION, kind, len(payload)) + payload)

    async def send_data(self, stream_id: int, data: bytes, *, flags: int = 0) -> None:
        async with self._send_lock:
            await self._duplex.send(struct.pack(">II", stream_id, flags << 24 | len(data)) + data)

    async def send_goaway(self) -> None:
        last = max(self._streams, default=0)
        await self._send_control(_GOAWAY, struct.pack(">II", last, 0))


def _stream_id(payload: bytes) -> int:
    number: int = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
    return number
