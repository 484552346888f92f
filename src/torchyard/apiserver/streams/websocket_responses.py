"""Watches and logs over WebSockets, which Headlamp and other pages in browsers use: messages from the server only.

The rules are those of kube-apiserver and of the library that it uses: the handshake of a watch needs an Origin,
whatever it is, and offers at most one protocol.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web
from aiohttp.web_request import BaseRequest

from torchyard.apiserver.request.response import JSON, TEXT, Response
from torchyard.apiserver.streams.upgrade import check_websocket_handshake, offered_protocols, upgrade_websocket

_BASE64 = "base64.binary.k8s.io"
_LOG_PROTOCOLS = ("binary.k8s.io", _BASE64)


def is_websocket(incoming: BaseRequest) -> bool:
    return incoming.headers.get("Upgrade", "").lower() == "websocket"


async def stream_response(incoming: BaseRequest, response: Response) -> Response:
    """Send a response that is a stream as messages: an event a message, or the log in binary messages."""
    body = response.body
    assert not isinstance(body, bytes)
    async with aclosing(body):
        check_websocket_handshake(incoming)
        offered = offered_protocols(incoming)
        is_watch = response.content_type.startswith(JSON)
        if is_watch and "Origin" not in incoming.headers:
            return Response(403, b"", TEXT)
        if is_watch and len(offered) > 1:
            return Response(400, b"", TEXT)
        socket = await upgrade_websocket(incoming, tuple(offered) if is_watch else _LOG_PROTOCOLS)
        sender = asyncio.ensure_future(_send_events(socket, body) if is_watch else _send_log(socket, body))
        try:
            await _wait_for_end(socket, sender)
        finally:
            sender.cancel()
            await asyncio.wait([sender])
            await socket.close()
    return Response(upgraded=socket)


async def _wait_for_end(socket: web.WebSocketResponse, sender: asyncio.Future[None]) -> None:
    """Until the stream ends or the client closes; what the client sends is ignored."""
    while not sender.done():
        receiver = asyncio.ensure_future(socket.receive())
        either: list[asyncio.Future[Any]] = [sender, receiver]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not receiver.done():
            receiver.cancel()
            await asyncio.wait([receiver])
        elif receiver.result().type in (
            web.WSMsgType.CLOSE,
            web.WSMsgType.CLOSING,
            web.WSMsgType.CLOSED,
            web.WSMsgType.ERROR,
        ):
            return
    if sender.exception() is not None and not isinstance(sender.exception(), ConnectionError):
        sender.result()


async def _send_events(socket: web.WebSocketResponse, chunks: AsyncGenerator[bytes, None]) -> None:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            await socket.send_str(line.decode() + "\n")


async def _send_log(socket: web.WebSocketResponse, chunks: AsyncGenerator[bytes, None]) -> None:
    is_text = socket.ws_protocol == _BASE64
    # An empty message first: clients then know that the connection is there, before the pod prints anything.
    await (socket.send_str("") if is_text else socket.send_bytes(b""))
    async for chunk in chunks:
        await (socket.send_str(base64.b64encode(chunk).decode()) if is_text else socket.send_bytes(chunk))
