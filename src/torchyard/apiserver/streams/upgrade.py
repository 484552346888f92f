"""Upgrades a connection of aiohttp to a WebSocket, or to a raw connection after a 101 response."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import cast

from aiohttp import WSMsgType, web
from aiohttp.web_request import BaseRequest

from torchyard.api import errors
from torchyard.api.errors import StatusError

_HIGH_WATER = 1 << 20
# The longest message of a client: its parts are held in memory until it is complete.
_MAX_MESSAGE = 16 << 20
_KEY_BYTES = 16
# Not a protocol: browsers, which cannot set headers, send their token this way.
_BEARER_PREFIX = "base64url.bearer.authorization.k8s.io."


class WebSocketDuplex:
    """A WebSocket's messages. Text messages count as bytes too, because Python clients send stdin as text.

    With `is_base64` a message is text: the digit of its channel, and the data in base64.
    """

    def __init__(self, socket: web.WebSocketResponse, *, is_base64: bool = False) -> None:
        self._socket, self._is_base64 = socket, is_base64

    async def send(self, data: bytes) -> None:
        if self._is_base64:
            await self._socket.send_str(f"{data[0]}{base64.b64encode(data[1:]).decode()}")
        else:
            await self._socket.send_bytes(data)

    async def receive(self) -> bytes | None:
        message = await self._receive()
        if not message or not self._is_base64:
            return message
        try:
            return bytes([int(message[:1])]) + base64.b64decode(message[1:], validate=True)
        except ValueError:  # binascii's error is one, too
            return b""

    async def _receive(self) -> bytes | None:
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return cast(bytes, message.data)
        if message.type is WSMsgType.TEXT:
            return cast(str, message.data).encode()
        return None

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing to do: aiohttp reads ahead, and its heartbeat ends the connection."""


def check_websocket_handshake(incoming: BaseRequest) -> None:
    """Raise 400 for a handshake that cannot be accepted."""
    headers = incoming.headers
    tokens = [token.strip().lower() for value in headers.getall("Connection", []) for token in value.split(",")]
    if incoming.method != "GET" or "upgrade" not in tokens:
        raise errors.bad_request("not a WebSocket handshake: expected GET with the header Connection: Upgrade")
    version = headers.get("Sec-WebSocket-Version", "")
    if version != "13":
        raise errors.bad_request(f"Sec-WebSocket-Version {version!r} is not supported, expected 13")
    try:
        key = base64.b64decode(headers.get("Sec-WebSocket-Key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise errors.bad_request(f"Sec-WebSocket-Key must be {_KEY_BYTES} bytes in base64")


def offered_protocols(incoming: BaseRequest) -> list[str]:
    headers = incoming.headers.getall("Sec-WebSocket-Protocol", [])
    offered = [protocol.strip() for text in headers for protocol in text.split(",")]
    return [protocol for protocol in offered if protocol and not protocol.startswith(_BEARER_PREFIX)]


async def upgrade_websocket(incoming: BaseRequest, protocols: tuple[str, ...]) -> web.WebSocketResponse:
    """Accept a WebSocket upgrade. An old client that offers no protocol gets none; 403 if all it offers are unknown."""
    offered = offered_protocols(incoming)
    if offered and not any(protocol in protocols for protocol in offered):
        raise StatusError(403, "Forbidden", f"none of the WebSocket protocols {', '.join(offered)} is supported")
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=_MAX_MESSAGE, heartbeat=30.0, compress=False)
    await socket.prepare(incoming)
    return socket


class RawDuplex(asyncio.Protocol):
    """The byte stream of a connection after the upgrade."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._buffered_bytes = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def data_received(self, data: bytes) -> None:
        self._buffered_bytes += len(data)
        self._queue.put_nowait(data)
        if self._buffered_bytes > _HIGH_WATER:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._queue.put_nowait(None)
        self._call_back()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._queue.put_nowait(None)
        self._may_write.set()
        self._call_back()

    def _call_back(self) -> None:
        for callback in self._callbacks:
            callback()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def send(self, data: bytes) -> None:
        await self._may_write.wait()
        if self._transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    async def receive(self) -> bytes | None:
        data = await self._queue.get()
        if data is not None:
            self._buffered_bytes -= len(data)
            if self._buffered_bytes <= _HIGH_WATER and not self._transport.is_closing():
                self._transport.resume_reading()
        return data


class HijackedResponse(web.StreamResponse):
    """The response of a request whose connection was upgraded: it writes nothing."""

    async def prepare(self, request: BaseRequest) -> None:
        self.force_close()

    async def write_eof(self, data: bytes = b"") -> None:
        return None


def upgrade_raw(incoming: BaseRequest, headers: dict[str, str]) -> RawDuplex:
    """Respond with 101 and switch to another protocol."""
    lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in headers.items())]
    return hijack(incoming, ("\r\n".join(lines) + "\r\n\r\n").encode())


def hijack(incoming: BaseRequest, head: bytes) -> RawDuplex:
    """Write the head of a response and continue the connection as a stream of bytes."""
    transport = incoming.transport
    assert transport is not None
    duplex = RawDuplex(transport)
    transport.write(head)
    transport.set_protocol(duplex)
    return duplex
