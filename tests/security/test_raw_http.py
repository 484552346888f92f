"""Bytes that no HTTP library sends: both servers answer with the same status and close the same connections."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.support import kubernetes as real
from tests.support.kubernetes import Kubernetes, Server
from tests.support.yard import Yard

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MEGABYTE = 1 << 20


class Wire(NamedTuple):
    """What a server sent: the statuses of its responses, and whether it closed the connection."""

    statuses: list[int]
    is_closed: bool
    data: bytes


@contextlib.contextmanager
def connected(server: Server) -> Iterator[ssl.SSLSocket]:
    parts = urlsplit(server.url)
    context = ssl.create_default_context(cafile=str(server.ca))
    plain = socket.create_connection((parts.hostname or "", parts.port or 443), timeout=30)
    with context.wrap_socket(plain, server_hostname=parts.hostname) as secure:
        yield secure


_status = re.compile(rb"HTTP/1\.[01] (\d{3})")


def exchange(server: Server, request: bytes, *, responses: int = 1) -> Wire:
    """Send bytes, then a request that closes the connection; return everything up to its end."""
    data = b""
    with connected(server) as peer:
        with contextlib.suppress(OSError):  # the server may close before it has read everything
            peer.sendall(request)
        is_closed = True
        with contextlib.suppress(OSError):
            while len(_statuses(data)) < responses:
                piece = peer.recv(1 << 16)
                if not piece:
                    break
                data += piece
            last = _statuses(data)
            peer.sendall(plain("GET", "/version", "Connection: close", token=server.token))
            while piece := peer.recv(1 << 16):
                data += piece
            is_closed = len(_statuses(data)) == len(last)
    return Wire(_statuses(data), is_closed, data)


def _statuses(data: bytes) -> list[int]:
    return [int(status) for status in _status.findall(data)]


def plain(method: str, path: str, *headers: str, token: str = "", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *([f"Authorization: Bearer {token}"] if token else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture(scope="module", params=["yard", "kube"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("raw-http")
    if request.param == "kube" and real.assets() is None:
        pytest.skip(real.MISSING)
    with (Kubernetes if request.param == "kube" else Yard)(directory) as running:
        yield running


# The head of an authorized request; TOKEN is replaced.
AUTH = b"Authorization: Bearer TOKEN\r\n"
GET = b"GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n" + AUTH
POST = f"POST {CONFIG_MAPS}?dryRun=All HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode() + AUTH
BODY = b'{"metadata":{"generateName":"a-"}}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

# name: bytes, the status, whether the connection is closed
CASES: dict[str, tuple[bytes, int, bool]] = {
    "plain": (GET + b"\r\n", 200, False),
    "with a length": (POST + LENGTH + b"\r\n" + BODY, 201, False),
    "chunked": (POST + CHUNKED + b"\r\n" + CHUNKS, 201, False),
    "chunked, byte by byte": (
        POST + CHUNKED + b"\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n",
        201,
        False,
    ),
    "chunk extension and trailer": (
        POST + CHUNKED + b"\r\n%x;a=b\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (len(BODY), BODY),
        201,
        False,
    ),
    "uppercase Chunked": (POST + b"Transfer-Encoding: Chunked\r\n\r\n" + CHUNKS, 201, False),
    "length and chunked": (POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS, 201, False),
    "two equal lengths": (POST + LENGTH + LENGTH + b"\r\n" + BODY, 201, False),
    "two lengths": (POST + LENGTH + b"Content-Length: 3\r\n\r\n" + BODY, 400, True),
    "length with a sign": (POST + b"Content-Length: +34\r\n\r\n" + BODY, 400, True),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n" + BODY, 400, True),
    "hexadecimal length": (POST + b"Content-Length: 0x10\r\n\r\n" + BODY, 400, True),
    "length with a comma": (POST + b"Content-Length: 34, 34\r\n\r\n" + BODY, 400, True),
    "empty length": (POST + b"Content-Length: \r\n\r\n" + BODY, 400, True),
    "huge length": (POST + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY, 400, True),
    "xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS, 501, True),
    "gzip, chunked": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, 501, True),
    "identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 501, True),
    "empty transfer encoding": (POST + b"Transfer-Encoding:\r\n\r\n", 501, True),
    "chunked twice": (POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS, 501, True),
    "chunked behind a vertical tab": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS, 400, True),
    "space before the colon": (POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS, 400, True),
    "folded header": (GET + b"X-A: b\r\n c\r\n\r\n", 200, False),
    "folded first header": (b"GET /version HTTP/1.1\r\n Host: x\r\n\r\n", 400, True),
    "bare line feeds": (b"GET /version HTTP/1.1\nHost: x\n\n", 200, False),
    "bare carriage return in a value": (GET + b"X-A: b\rc\r\n\r\n", 400, True),
    "NUL in a value": (GET + b"X-A: \0\r\n\r\n", 400, True),
    "NUL in a name": (GET + b"X\0A: b\r\n\r\n", 400, True),
    "DEL in a value": (GET + b"X-A: \x7f\r\n\r\n", 400, True),
    "bytes above 127 in a value": (GET + b"X-A: \xff\xfe\r\n\r\n", 200, False),
    "header without a colon": (GET + b"nonsense\r\n\r\n", 400, True),
    "header without a name": (GET + b": a\r\n\r\n", 400, True),
    "no host": (b"GET /version HTTP/1.1\r\n\r\n", 400, True),
    "two hosts": (b"GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, True),
    "malformed host": (b"GET /version HTTP/1.1\r\nHost: a b\r\n\r\n", 400, True),
    "empty host": (b"GET /version HTTP/1.1\r\nHost: \r\n\r\n", 200, False),
    "HTTP/1.0": (b"GET /version HTTP/1.0\r\n\r\n", 200, True),
    "HTTP/1.0 with keep-alive": (b"GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, False),
    "HTTP/1.0 with chunked": (
        POST.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKED + LENGTH + b"\r\n" + BODY,
        201,
        True,
    ),
    "HTTP/2.0": (b"GET /version HTTP/2.0\r\nHost: x\r\n\r\n", 505, True),
    "HTTP/1.2": (b"GET /version HTTP/1.2\r\nHost: x\r\n\r\n", 200, False),
    "HTTP/1.10": (b"GET /version HTTP/1.10\r\nHost: x\r\n\r\n", 400, True),
    "http/1.1": (b"GET /version http/1.1\r\nHost: x\r\n\r\n", 400, True),
    "no version": (b"GET /version\r\nHost: x\r\n\r\n", 400, True),
    "three spaces": (b"GET  /version HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "no method": (b" /version HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "method with a slash": (b"G/T /version HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "relative target": (b"GET version HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "absolute target": (b"GET http://y/version HTTP/1.1\r\nHost: x\r\n\r\n", 200, False),
    "control character in the target": (b"GET /ver\x01sion HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "NUL in the target": (b"GET /version\0 HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "broken escape in the target": (b"GET /version%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "empty line first": (b"\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n", 400, True),
    "not HTTP": (b"\x16\x03\x01 hello\r\n\r\n", 400, True),
    "unknown expectation": (POST + b"Expect: nothing\r\n" + LENGTH + b"\r\n" + BODY, 417, True),
    "chunk size is not a number": (POST + CHUNKED + b"\r\nzz\r\n" + BODY, 400, True),
    "chunk size with a sign": (POST + CHUNKED + b"\r\n-1\r\n" + BODY, 400, True),
    "chunk size with 17 digits": (POST + CHUNKED + b"\r\n11111111111111111\r\n" + BODY, 400, True),
    "chunk longer than its size": (POST + CHUNKED + b"\r\n3\r\nabcdef\r\n0\r\n\r\n", 400, True),
    "chunk line without an end": (POST + CHUNKED + b"\r\n1;" + b"a" * 5000, 400, True),
    "too many headers": (GET + b"X-A: b\r\n" * 200_000 + b"\r\n", 431, True),
    "a header of 900 KiB": (GET + b"X-A: " + b"b" * (900 << 10) + b"\r\n\r\n", 200, False),
    "a header of 2 MiB": (GET + b"X-A: " + b"b" * (2 * MEGABYTE) + b"\r\n\r\n", 431, True),
}
# kube-apiserver answers a malformed chunk with 500; it is the client's error.
KUBE_STATUS = dict.fromkeys((name for name in CASES if name.startswith("chunk ") and CASES[name][1] == 400), 500)


@pytest.mark.parametrize("name", CASES)
def test_status_and_end_of_the_connection(server: Server, name: str) -> None:
    request, status, is_closed = CASES[name]
    if server.real:
        status = KUBE_STATUS.get(name, status)
    wire = exchange(server, request.replace(b"TOKEN", server.token.encode()))
    assert (wire.statuses[:1], wire.is_closed) == ([status], is_closed), wire.data[:500]
