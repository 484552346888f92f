"""The server side of SPDY/3.1 as Kubernetes clients use it: frames, header blocks, streams.

Clients (moby/spdystream) have no flow control, so a stream with a slow reader blocks its whole connection. Data is
passed on as it arrives, so that a frame of 16 MB is not held in memory. A client that breaks the protocol, or opens
more streams than it may, loses its connection (`SpdyError`).
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import Awaitable, Callable

from torchyard.apiserver.streams.interfaces import Duplex
from torchyard.apiserver.streams.spdy_dictionary import DICTIONARY

_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 1
_HEADER_SIZE = 8
# The longest control frame, compressed, and its headers, inflated.
_MAX_CONTROL = 64 << 10
_MAX_HEADERS = 64 << 10
_QUEUE_SIZE = 8
_BLOCK = 32 * 1024


class SpdyError(ConnectionError):
    """The client broke the protocol."""


class SpdyStream:
    """One stream of a connection; the client opens it with headers."""

    def __init__(self, connection: SpdyConnection, stream_id: int, headers: dict[str, str]) -> None:
        self._connection, self.stream_id, self.headers = connection, stream_id, headers
        self._chunks: deque[bytes] = deque()
        self._may_read, self._may_feed = asyncio.Event(), asyncio.Event()
        self.is_closed = False  # the server's side
        self.has_ended = False  # the client's side

    async def read(self) -> bytes | None:
        """The next chunk; None at the end."""
        while not self._chunks:
            if self.has_ended:
                return None
            self._may_read.clear()
            await self._may_read.wait()
        chunk = self._chunks.popleft()
        self._may_feed.set()
        return chunk

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            await self._connection.send_data(self.stream_id, data[start : start + _BLOCK])

    async def close(self) -> None:
        """Close the write side."""
        if not self.is_closed:
            self.is_closed = True
            await self._connection.send_data(self.stream_id, b"", flags=_FIN)
            self._connection.remove_if_done(self)

    async def feed(self, data: bytes) -> None:
        """Data of the client; waits while it is not read."""
        for start in range(0, len(data), _BLOCK):
            while len(self._chunks) >= _QUEUE_SIZE and not self.has_ended:
                self._may_feed.clear()
                await self._may_feed.wait()
            if self.has_ended:
                return
            self._chunks.append(data[start : start + _BLOCK])
            self._may_read.set()

    def feed_eof(self) -> None:
        """The client has closed its side, or is gone."""
        self.has_ended = True
        self._may_read.set()
        self._may_feed.set()
        self._connection.remove_if_done(self)


class SpdyConnection:
    """A SPDY connection: `run` it until it ends. `on_stream` is called for every new stream and must not block."""

    def __init__(self, duplex: Duplex, on_stream: Callable[[SpdyStream], Awaitable[None]], *, max_streams: int) -> None:
        self._duplex, self._on_stream, self._max_streams = duplex, on_stream, max_streams
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, SpdyStream] = {}
        self._last_id = 0
        self._is_over = False  # the client is gone
        # Of the data frame that is being read: its stream, its flags, and how much is missing.
        self._data: tuple[SpdyStream | None, int, int] | None = None
        self._send_lock = asyncio.Lock()

    async def run(self) -> None:
        """Returns when the client disconnects. Raises `SpdyError`."""
        self._duplex.on_close(self._end_streams)
        try:
            while (data := await self._duplex.receive()) is not None:
                self._buffer += data
                while await self._take_frame():
                    pass
        except _GoingAway:
            return
        finally:
            self._end_streams()

    def _end_streams(self) -> None:
        self._is_over = True
        for stream in list(self._streams.values()):
            stream.feed_eof()

    def remove_if_done(self, stream: SpdyStream) -> None:
        if stream.is_closed and stream.has_ended:
            self._streams.pop(stream.stream_id, None)

    async def _take_frame(self) -> bool:
        """Handle the next frame, or the part of a data frame that is there; False if more bytes are needed."""
        if self._data is not None:
            return await self._take_data(*self._data)
        if len(self._buffer) < _HEADER_SIZE:
            return False
        first, second = struct.unpack_from(">II", self._buffer)
        flags, size = second >> 24, second & 0xFFFFFF
        if not first >> 31:
            del self._buffer[:_HEADER_SIZE]
            self._data = self._streams.get(first), flags, size
            return True
        if first >> 16 != _VERSION:
            raise SpdyError(f"unsupported SPDY version {first >> 16 & 0x7FFF}")
        if size > _MAX_CONTROL:
            raise SpdyError(f"control frame of {size} bytes")
        if len(self._buffer) < _HEADER_SIZE + size:
            return False
        payload = bytes(self._buffer[_HEADER_SIZE : _HEADER_SIZE + size])
        del self._buffer[: _HEADER_SIZE + size]
        try:
            await self._handle_control(first & 0xFFFF, flags, payload)
        except (struct.error, zlib.error) as error:
            raise SpdyError(f"malformed frame: {error}") from None
        return True

    async def _take_data(self, stream: SpdyStream | None, flags: int, missing: int) -> bool:
        piece = bytes(self._buffer[:missing])
        del self._buffer[: len(piece)]
        missing -= len(piece)
        self._data = (stream, flags, missing) if missing else None
        if stream is not None and piece:
            await stream.feed(piece)
        if stream is not None and not missing and flags & _FIN:
            stream.feed_eof()
        return bool(piece) or not missing

    async def _handle_control(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SYN_STREAM:
            await self._open(flags, payload)
        elif kind == _HEADERS:
            self._headers(payload[4:])  # the compression has one state for all header blocks
        elif kind == _RST_STREAM:
            stream = self._streams.pop(_stream_id(payload), None)
            if stream:
                stream.feed_eof()
        elif kind == _PING:
            await self._send_control(_PING, payload[:4])
        elif kind == _GOAWAY:
            raise _GoingAway

    async def _open(self, flags: int, payload: bytes) -> None:
        stream_id = _stream_id(payload)
        headers = self._headers(payload[10:])
        if stream_id <= self._last_id or not stream_id % 2:
            raise SpdyError(f"invalid stream id {stream_id}")
        if len(self._streams) >= self._max_streams:
            raise SpdyError(f"more than {self._max_streams} streams")
        self._last_id = stream_id
        stream = SpdyStream(self, stream_id, headers)
        self._streams[stream_id] = stream
        if flags & _FIN or self._is_over:
            stream.feed_eof()
        await self._send_control(_SYN_REPLY, struct.pack(">I", stream_id) + self._header_block({}))
        await self._on_stream(stream)

    def _headers(self, block: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(block, _MAX_HEADERS)
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"headers of more than {_MAX_HEADERS} bytes")
        (count,) = struct.unpack_from(">I", raw)
        offset, fields = 4, []
        for _ in range(2 * count):
            (size,) = struct.unpack_from(">I", raw, offset)
            if size > len(raw) - offset - 4:
                raise SpdyError("malformed headers")
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
        await self._send_control(_GOAWAY, struct.pack(">II", self._last_id, 0))


class _GoingAway(Exception):
    """The client ends the connection."""


def _stream_id(payload: bytes) -> int:
    number: int = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
    return number
