"""Decodes a chunked body, as Go's net/http does."""

from __future__ import annotations

import re

_MAX_LINE = 4096
_MAX_STEPS = 4000
# Of what is not data, so much is free for every chunk and every byte; beyond it, a body may have so many bytes.
_FREE_PER_CHUNK, _FREE_PER_BYTE, _MAX_EXCESS = 16, 2, 16 << 10
_size = re.compile(rb"[0-9A-Fa-f]{1,16}")
_trailer = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")


class MalformedChunk(Exception):
    """The message is Go's."""


class ChunkedDecoder:
    """Takes bytes from the front of a buffer until the body is complete."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._body = bytearray()
        self._left = 0  # of the current chunk, with its line break
        self._excess = 0
        self._in_trailer = False
        self.is_complete = False
        self.is_too_large = False

    @property
    def size(self) -> int:
        return len(self._body)

    def body(self) -> bytes:
        return bytes(self._body)

    def feed(self, buffer: bytearray) -> bool:
        """Remove what belongs to the body from the front of the buffer; returns whether to call again at once.

        A call decodes a limited number of chunks, so that a body of tiny chunks does not take the event loop for long.
        Raises `MalformedChunk`.
        """
        at = 0
        try:
            for _ in range(_MAX_STEPS):
                if self.is_complete or self.is_too_large:
                    return False
                taken = self._take_data(buffer, at) if self._left else self._take_line(buffer, at)
                if not taken:
                    return False
                at += taken
        finally:
            del buffer[:at]
        return True

    def _take_data(self, buffer: bytearray, at: int) -> int:
        available = min(len(buffer) - at, self._left)
        data = max(0, min(available, self._left - 2))
        self._body += buffer[at : at + data]
        end = buffer[at + data : at + available]
        if end and not b"\r\n"[2 - (self._left - data) :].startswith(end):
            raise MalformedChunk("malformed chunked encoding")
        self._left -= available
        return available

    def _take_line(self, buffer: bytearray, at: int) -> int:
        end = buffer.find(b"\n", at, at + _MAX_LINE + 1)
        if end < 0:
            if len(buffer) - at > _MAX_LINE:
                raise MalformedChunk("header line too long")
            return 0
        line = bytes(buffer[at:end])
        if not line.endswith(b"\r"):
            raise MalformedChunk("chunked line ends with bare LF")
        line = line[:-1]
        if self._in_trailer:
            self._take_trailer(line)
        else:
            self._begin_chunk(line)
        return end + 1 - at

    def _begin_chunk(self, line: bytes) -> None:
        size_text = line.partition(b";")[0].rstrip(b" \t")
        if b"\r" in line:
            raise MalformedChunk("malformed chunked encoding")
        if not _size.fullmatch(size_text):
            raise MalformedChunk(
                "empty hex number for chunk length" if not size_text else "invalid byte in chunk length"
            )
        size = int(size_text, 16)
        self._excess = max(0, self._excess + len(line) + 2 - _FREE_PER_CHUNK - _FREE_PER_BYTE * size)
        if self._excess > _MAX_EXCESS:
            raise MalformedChunk("chunked encoding contains too much non-data")
        if size == 0:
            self._in_trailer = True
        elif len(self._body) + size > self._limit:
            self.is_too_large = True
        else:
            self._left = size + 2

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.is_complete = True
            return
        self._excess += len(line) + 2
        if self._excess > _MAX_EXCESS:
            raise MalformedChunk("chunked encoding contains too much non-data")
        if not _trailer.fullmatch(line):
            raise MalformedChunk("malformed MIME header line")
