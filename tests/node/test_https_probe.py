"""Probes over HTTPS: any certificate is accepted, and the machine's authorities are not loaded for it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import NoReturn, cast

import pytest

from torchyard.apiserver.access.certificates import ensure
from torchyard.apiserver.access.tls import server_context
from torchyard.node.pod.handlers import http_get
from torchyard.node.shim.client import ShimClient


class Loopback:
    """Connects as a shim does, but outside of a pod."""

    async def connect(self, host: str, port: int) -> socket.socket:
        connection = socket.create_connection((host, port))
        connection.setblocking(False)
        return connection


async def test_a_probe_over_https_accepts_any_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
        writer.close()

    def not_loaded(*_: object) -> NoReturn:
        raise AssertionError("loading the authorities blocks the event loop")

    context = server_context(ensure(tmp_path, names=("other.example.com",)))
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", not_loaded)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        shim = cast(ShimClient, Loopback())
        result = await http_get(shim, {"scheme": "HTTPS", "path": "/"}, host="127.0.0.1", port=port, seconds=30)
    assert result.passed, result.message
