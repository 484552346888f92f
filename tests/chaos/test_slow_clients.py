"""Misbehaving clients: others are not affected, and the server's memory stays bounded."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from tests.chaos.writers import COLLECTION
from tests.support.effort import rounds
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

MEGABYTE = 1 << 20


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """A server of its own, so that its memory is this test's."""
    ours = Yard(tmp_path, controllers="-*")
    with ours:
        yield ours


def memory(yard: Yard) -> int:
    assert yard.process is not None
    return int(psutil.Process(yard.process.pid).memory_info().rss)


@contextlib.contextmanager
def connected(server: Server, *, receive_buffer: int = 0) -> Iterator[ssl.SSLSocket]:
    """A TLS connection on which nothing was sent yet."""
    parts = urlsplit(server.url)
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(60)
    plain.connect((parts.hostname or "", parts.port or 443))
    context = ssl.create_default_context(cafile=str(server.ca))
    with context.wrap_socket(plain, server_hostname=parts.hostname) as secure:
        yield secure


def ask(server: Server, path: str, method: str = "GET", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_watcher_that_never_reads_does_not_block_others(yard: Yard) -> None:
    server = yard.server()
    api = server.admin
    assert api.post(COLLECTION, {"metadata": {"name": "big"}}).status == 201
    since = api.get(COLLECTION).json["metadata"]["resourceVersion"]
    before = memory(yard)
    changes = rounds(400, 2000)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stuck = stack.enter_context(connected(server, receive_buffer=4096))
            stuck.sendall(ask(server, f"{COLLECTION}?watch=true&resourceVersion={since}"))
        good = stack.enter_context(api.watch(COLLECTION, query={"resourceVersion": since}))
        for number in range(changes):
            answer = api.patch(f"{COLLECTION}/big", {"data": {"v": str(number), "pad": "x" * 100_000}})
            assert answer.status == 200
        seen = [event["object"]["data"]["v"] for event in good.take(changes, timeout=60)]
        assert seen == [str(number) for number in range(changes)]
        # Five stuck watchers with 40 MB of events each: the server keeps a limited part for them.
        assert memory(yard) - before < 150 * MEGABYTE, f"{(memory(yard) - before) // MEGABYTE} MB more"
    assert api.get("/readyz").status == 200


def test_a_client_that_never_reads_its_lists_does_not_block_others(yard: Yard) -> None:
    server = yard.server()
    api = server.admin
    for number in range(50):
        body = {"metadata": {"name": f"large-{number}"}, "data": {"pad": "x" * 100_000}}
        assert api.post(COLLECTION, body).status == 201
    before = memory(yard)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            deaf = stack.enter_context(connected(server, receive_buffer=4096))
            deaf.sendall(ask(server, COLLECTION) * 50)
        for _ in range(50):
            assert api.get(f"{COLLECTION}/large-1").status == 200
        eventually(lambda: api.get(COLLECTION).status == 200, "a list of one's own")
        # Fifty lists of 5 MB were requested on each; one is buffered, in the few copies that TLS makes.
        assert memory(yard) - before < 20 * 4 * 5 * MEGABYTE, f"{(memory(yard) - before) // MEGABYTE} MB more"


def test_two_thousand_idle_connections_cost_little(yard: Yard) -> None:
    count = rounds(500, 2000)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip(f"this machine allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    server = yard.server()
    before = memory(yard)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connected(server))
        for _ in range(20):
            with contextlib.closing(server.admin.connect()) as fresh:
                fresh.request("GET", "/readyz", headers={"Authorization": f"Bearer {server.token}"})
                assert fresh.getresponse().read() == b"ok"
        assert (memory(yard) - before) / count < 200 * 1024, f"{(memory(yard) - before) // count} bytes each"
    assert server.admin.get("/readyz").status == 200


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_a_body_of_100_mb_is_rejected_without_being_buffered(yard: Yard, *, chunked: bool) -> None:
    server = yard.server()
    before = memory(yard)
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {100 * MEGABYTE}"
    piece = b"x" * MEGABYTE
    if chunked:
        piece = b"%x\r\n%s\r\n" % (len(piece), piece)
    with connected(server) as sender:
        sender.sendall(ask(server, COLLECTION, "POST", "Content-Type: application/json", framing))
        with contextlib.suppress(OSError):  # the server may close the connection as soon as it has read enough
            for _ in range(100):
                sender.sendall(piece)
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = http.client.HTTPResponse(sender)
            answer.begin()
            assert answer.status == 413
    assert memory(yard) - before < 30 * MEGABYTE
    assert server.admin.get("/readyz").status == 200


def test_a_client_that_reads_gets_the_rejection_of_a_large_body(yard: Yard) -> None:
    server = yard.server()
    with connected(server) as sender:
        head = ask(server, COLLECTION, "POST", "Content-Type: application/json", f"Content-Length: {100 * MEGABYTE}")
        sender.sendall(head + b"x" * 1000)
        answer = http.client.HTTPResponse(sender)
        answer.begin()
        assert (answer.status, b'"reason":"RequestEntityTooLarge"' in answer.read()) == (413, True)


def test_a_slow_request_does_not_delay_others(yard: Yard) -> None:
    server = yard.server()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(server)) for _ in range(20)]
        for piece in (b"GET /api/v1/pods HT", b"TP/1.1\r\nHost", b": x\r\nAuthor"):
            for item in slow:
                item.sendall(piece)
            started = time.monotonic()
            assert server.admin.get("/api/v1/namespaces/default").status == 200
            assert time.monotonic() - started < 20
