"""Persistent connections to webhooks, which a webhook may close at any time."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.apiserver.access.webhook_server import certificate

from torchyard.apiserver.access.webhooks.client import WebhookCallError, WebhookClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class ClosingServer:
    """Answers the first `answers` requests of a connection and closes it when the next one comes."""

    def __init__(self, directory: Path, answers: int) -> None:
        chain, self.ca = certificate(directory)
        self._answers = answers
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def config(self) -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{self.listener.getsockname()[1]}/", "caBundle": self.ca}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                raw, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with suppress(OSError), raw, self._context.wrap_socket(raw, server_side=True) as connection:
            for number in range(self._answers + 1):
                data = b""
                while not data.endswith(b"body"):
                    if not (received := connection.recv(65536)):
                        return  # the client has closed the connection
                    data += received
                if number < self._answers:
                    connection.sendall(ANSWER)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClosingServer]:
    closing = ClosingServer(tmp_path, request.param)
    yield closing
    closing.listener.close()


@pytest.mark.parametrize("server", [1], indirect=True)
async def test_a_request_over_a_connection_that_is_being_closed_is_sent_again(server: ClosingServer) -> None:
    client = WebhookClient()
    for _ in range(5):
        assert await client.call(server.config, b"body", 10) == b"{}"
    assert server.connections == 5
    await client.close()


@pytest.mark.parametrize("server", [0], indirect=True)
async def test_a_new_connection_that_is_closed_is_an_error(server: ClosingServer) -> None:
    client = WebhookClient()
    with pytest.raises(WebhookCallError):
        await client.call(server.config, b"body", 10)
    assert server.connections == 1
    await client.close()
