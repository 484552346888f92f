"""Connections that a client gives up are closed at once, also where the server never answers the TLS shutdown."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import socket
import ssl
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.webhook_server import certificate

from torchyard.kube.client import Unreachable
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"


class DeafServer:
    """Reads one request of each connection, sends `answer`, and then neither reads nor closes."""

    def __init__(self, directory: Path) -> None:
        chain, authority = certificate(directory)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.answer = b""
        self.has_request = threading.Event()
        self._accepted: list[socket.socket] = []
        self.connection = Connection(
            f"https://127.0.0.1:{self.listener.getsockname()[1]}", authority=base64.b64decode(authority)
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self.listener.accept()
                accepted = self._context.wrap_socket(raw, server_side=True)
                self._accepted.append(accepted)
                accepted.recv(65536)
                if self.answer:
                    accepted.sendall(self.answer)
                self.has_request.set()

    def close(self) -> None:
        self.listener.close()
        for accepted in self._accepted:
            accepted.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DeafServer]:
    deaf = DeafServer(tmp_path)
    yield deaf
    deaf.close()


def client_sockets(server: DeafServer) -> list[socket.socket]:
    """The client's sockets to the server that are still open in this process."""
    peer = server.listener.getsockname()
    sockets = [item for item in gc.get_objects() if type(item) is socket.socket and item.fileno() >= 0]
    return [item for item in sockets if _peer(item) == peer]


def open_sockets(server: DeafServer) -> int:
    return len(client_sockets(server))


def _peer(item: socket.socket) -> Any:
    try:
        return item.getpeername()
    except OSError:
        return None


async def cancel_once_served(server: DeafServer, work: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.create_task(work)
    assert await asyncio.to_thread(server.has_request.wait, 60)
    assert open_sockets(server) == 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    for _ in range(10):  # turns of the event loop, no time
        await asyncio.sleep(0)


async def test_a_cancelled_request_is_closed_although_the_server_never_answers(server: DeafServer) -> None:
    transport = HttpTransport(server.connection, user_agent="test")
    await cancel_once_served(server, transport.request("GET", "/api"))
    assert open_sockets(server) == 0
    await transport.close()


async def test_a_cancelled_stream_is_closed_although_the_server_never_answers(server: DeafServer) -> None:
    server.answer = STREAM_HEAD
    transport = HttpTransport(server.connection, user_agent="test")

    async def read() -> None:
        async with contextlib.aclosing(transport.stream("/api?watch=1")) as chunks:
            async for _ in chunks:
                pass

    await cancel_once_served(server, read())
    assert open_sockets(server) == 0
    await transport.close()


async def test_the_kernel_notices_that_the_server_of_a_stream_has_vanished(server: DeafServer) -> None:
    """A stream has no time limit, and a network that is gone ends no connection."""
    server.answer = STREAM_HEAD
    transport = HttpTransport(server.connection, user_agent="test")
    opened = await transport.open_stream("/api?watch=1")
    read = transport.stream("/api?watch=1")
    assert await anext(read) == b"one"
    options = [item.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for item in client_sockets(server)]
    idle = [item.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) for item in client_sockets(server)]
    assert (options, idle) == ([1, 1], [30, 30])
    await opened.chunks.aclose()
    await read.aclose()
    await transport.close()


async def test_a_closed_transport_opens_no_connection(server: DeafServer) -> None:
    transport = HttpTransport(server.connection, user_agent="test")
    await transport.close()
    with pytest.raises(Unreachable, match="is closed"):
        await transport.request("GET", "/api")
    with pytest.raises(Unreachable, match="is closed"):
        await anext(transport.stream("/api?watch=1"))
