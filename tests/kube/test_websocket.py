"""WebSockets of the HTTP transport, without an API server."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from torchyard.kube import http
from torchyard.kube.client import Unreachable
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection


async def test_a_server_that_does_not_answer_the_handshake_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.05)
    left = asyncio.Event()

    async def read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        left.set()

    server = await asyncio.start_server(read_only, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(Connection(server=f"http://127.0.0.1:{port}"), user_agent="test")
    with pytest.raises(Unreachable, match="does not respond"):
        async with transport.websocket("/exec", ("v5.channel.k8s.io",)):
            pass
    await left.wait()  # the connection is closed, too
    await transport.close()
    server.close()


async def test_a_peer_of_a_websocket_that_vanishes_is_detected() -> None:
    async def accept(request: web.Request) -> web.WebSocketResponse:
        accepted = web.WebSocketResponse()
        await accepted.prepare(request)
        await accepted.receive()
        return accepted

    app = web.Application()
    app.router.add_get("/exec", accept)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    transport = HttpTransport(Connection(server=f"http://{host}:{port}"), user_agent="test")
    async with transport.websocket("/exec", ()) as opened:
        connected = opened._socket.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await transport.close()
    await runner.cleanup()
