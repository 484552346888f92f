"""Connections to a server on which a test writes every byte itself."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.support.kubernetes import Server


def dial(server: Server, timeout: float = 60) -> socket.socket:
    """A TCP connection on which nothing was sent."""
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 443), timeout=timeout)


def secure(server: Server, plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(server.ca))
    return context.wrap_socket(plain, server_hostname=urlsplit(server.url).hostname)


@contextlib.contextmanager
def connected(server: Server) -> Iterator[ssl.SSLSocket]:
    """A TLS connection on which nothing was sent."""
    with secure(server, dial(server)) as peer:
        yield peer


def head(method: str, path: str, *headers: str, token: str = "") -> bytes:
    authorization = [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *authorization, *headers, "", ""]).encode()


def response(peer: socket.socket) -> tuple[int, bytes]:
    """The status and the body of the next response."""
    answer = http.client.HTTPResponse(peer)
    answer.begin()
    return answer.status, answer.read()


def is_closed(peer: socket.socket) -> bool:
    """Whether the server closed the connection; waits for it."""
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
