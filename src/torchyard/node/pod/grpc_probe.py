"""A gRPC health check (grpc.health.v1.Health/Check) over the few frames of HTTP/2 that it takes.

A probe must not need gRPC's library in the plane. Requests use no Huffman codes and no dynamic table; of the response
only the message is read, so a failed call has no text of the server.
"""

from __future__ import annotations

import asyncio
import socket
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8
_STREAM = 1
_MAX_FRAME = 1 << 16
_ERROR_NAMES = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
    *("INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)
STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


class HealthCheckFailed(Exception):
    """The server returned no health status."""


async def check(connection: socket.socket, *, authority: str, service: str) -> str:
    """The status of a service: one of STATUSES. Raises HealthCheckFailed and OSError."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        writer.write(_frame(_HEADERS, _END_HEADERS, _STREAM, _request_headers(authority)))
        writer.write(_frame(_DATA, _END_STREAM, _STREAM, _message(service)))
        return _status(await _read_response(reader, writer))
    except asyncio.IncompleteReadError:
        raise HealthCheckFailed("the connection was closed") from None
    finally:
        writer.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def _request_headers(authority: str) -> bytes:
    # HPACK: two entries of the static table, then literals whose names are in it, then one with a name of its own
    block = bytes([0x80 | 3, 0x80 | 6])  # :method POST, :scheme http
    block += bytes([4]) + _string("/grpc.health.v1.Health/Check")  # :path
    block += bytes([1]) + _string(authority)  # :authority
    block += bytes([0x0F, 31 - 15]) + _string("application/grpc")  # content-type
    block += bytes([0x0F, 58 - 15]) + _string("kube-probe/1.34")  # user-agent
    return block + bytes([0]) + _string("te") + _string("trailers")


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    size = _varint(len(data) - 127)
    return bytes([127]) + size + data


def _varint(number: int) -> bytes:
    output = bytearray()
    while number > 127:
        output.append(number & 127 | 128)
        number >>= 7
    return bytes([*output, number])


def _message(service: str) -> bytes:
    name = service.encode()
    body = b"\x0a" + _varint(len(name)) + name if name else b""
    return b"\0" + struct.pack("!I", len(body)) + body


async def _read_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    content = b""
    while True:
        head = await reader.readexactly(9)
        size = int.from_bytes(head[:3], "big")
        kind, flags, stream = struct.unpack("!BBI", head[3:])
        if size > _MAX_FRAME:
            raise HealthCheckFailed("a frame is too large")
        payload = await reader.readexactly(size)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY:
            raise HealthCheckFailed(_goaway_reason(payload))
        elif kind == _RST_STREAM and stream == _STREAM:
            raise HealthCheckFailed(f"the server reset the call: {_error_name(payload)}")
        elif stream == _STREAM and kind in (_DATA, _HEADERS):
            if kind == _DATA:
                content += _without_padding(payload) if flags & _PADDED else payload
            if flags & _END_STREAM or len(content) > _MAX_FRAME:
                return content


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise HealthCheckFailed("the padding of a DATA frame is longer than the frame")
    return payload[1 : len(payload) - payload[0]]


def _goaway_reason(payload: bytes) -> str:
    if len(payload) < 8:
        raise HealthCheckFailed("a GOAWAY frame is too short")
    debug_data = payload[8:].decode("utf-8", "replace")
    reason = f"the server closed the connection: {_error_name(payload[4:8])}"
    return f"{reason}, {debug_data!r}" if debug_data else reason


def _error_name(code: bytes) -> str:
    """The name of an error code of HTTP/2 (RFC 9113, section 7)."""
    if len(code) != 4:
        raise HealthCheckFailed("an error code does not have four bytes")
    number = int.from_bytes(code, "big")
    return _ERROR_NAMES[number] if number < len(_ERROR_NAMES) else f"error {number}"


def _status(content: bytes) -> str:
    """The `status` of a HealthCheckResponse, which is left out if it is 0."""
    if len(content) < 5:
        raise HealthCheckFailed("the server does not implement grpc.health.v1.Health, or the call failed")
    message = content[5:]
    number = message[1] if len(message) > 1 and message[0] == 8 else 0
    return STATUSES[number] if number < len(STATUSES) else str(number)
