"""Connections are limited, and those that nobody needs are closed first: known clients always get through."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.security.raw import dial, head, is_closed, response, secure
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.apiserver.http.limits import limits_for

USERS = "alice-token,alice,1\n"


@contextlib.contextmanager
def open_files(limit: int) -> Iterator[None]:
    """Processes that are started here have this soft limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"this machine allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))


def open_silent_connections(server: Server, count: int, stack: contextlib.ExitStack) -> None:
    for _ in range(count):
        with contextlib.suppress(ConnectionResetError):  # a busy server closes it while this process still connects
            stack.enter_context(dial(server))


def metric(server: Server, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} ([\d.e+]+)$", server.admin.get("/metrics").text, re.MULTILINE)
    assert match is not None, name
    return float(match[1])


def get_anew(server: Server, token: str = "", path: str = "/api/v1/namespaces/default") -> int:
    """The status of a GET on a connection of its own."""
    with secure(server, dial(server)) as peer:
        peer.sendall(head("GET", path, token=token or server.token))
        return response(peer)[0]


def test_a_soft_limit_of_1024_files_does_not_lock_anyone_out(tmp_path: Path) -> None:
    ours = Yard(tmp_path, controllers="-*")
    with open_files(1024):
        ours.start()
    try:
        server = ours.server()
        with contextlib.ExitStack() as stack:
            open_silent_connections(server, 1200, stack)
            for _ in range(5):
                assert get_anew(server) == 200
            assert server.admin.get("/readyz").status == 200
        assert "limit of open files raised: soft=1024" in ours.log.read_text()
        assert metric(server, "torchyard_connections_limit") > 1024
    finally:
        ours.stop()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    ours = Yard(tmp_path_factory.mktemp("limits"), controllers="-*", users=USERS, flags=("--max-connections", "60"))
    with ours:
        yield ours


@pytest.mark.parametrize("sends", ["nothing", "a handshake", "half a request"])
def test_connections_without_a_request_make_room_for_others(yard: Yard, sends: str) -> None:
    server = yard.server()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            peer: socket.socket = stack.enter_context(dial(server))
            with contextlib.suppress(OSError):  # closed by the server already
                if sends != "nothing":
                    peer = stack.enter_context(secure(server, peer))
                if sends == "half a request":
                    peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        for _ in range(5):
            assert get_anew(server) == 200
        assert server.admin.get("/version").status == 200  # on the connection it had before
    assert metric(server, "torchyard_connections_evicted_total") > 0
    assert "connections closed to make room: reason='too many unauthenticated connections'" in yard.log.read_text()


def test_idle_connections_of_one_user_make_room_for_others(yard: Yard) -> None:
    server = yard.server()
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            peer = stack.enter_context(secure(server, dial(server)))
            peer.sendall(head("GET", "/version", token=server.token))
            assert response(peer)[0] == 200
        counted = [metric(server, f'torchyard_connections{{authenticated="{value}"}}') for value in ("true", "false")]
        assert 40 <= sum(counted) <= 60, "the limit counts every open connection"
        assert get_anew(server, "alice-token", "/version") == 200
        assert get_anew(server) == 200


def test_a_user_with_too_many_connections_gets_429(yard: Yard) -> None:
    server = yard.server()
    with contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(35):
            peer = stack.enter_context(secure(server, dial(server)))
            peer.sendall(head("GET", "/version", token="alice-token"))
            statuses.append(response(peer)[0])
        assert statuses == [200] * 30 + [429] * 5
        assert is_closed(peer)
        assert get_anew(server) == 200
    eventually(lambda: get_anew(server, "alice-token", "/version") == 200, "a connection after the others are gone")


def _settled_files(process: psutil.Process) -> int:
    """The number of open files once the plane has loaded all its parts, which it does after its first answer."""
    counts = [-1, process.num_fds()]

    def is_settled() -> bool:
        time.sleep(0.5)
        counts.append(process.num_fds())
        return len(set(counts[-3:])) == 1

    eventually(is_settled, "the same number of open files three times")
    return counts[-1]


def test_a_process_out_of_files_closes_what_nobody_needs_and_says_so(tmp_path: Path) -> None:
    ours = Yard(tmp_path, controllers="-*")
    with ours as server:
        assert ours.process is not None
        process = psutil.Process(ours.process.pid)
        used = _settled_files(process)
        _, hard = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
        with contextlib.ExitStack() as stack:
            open_silent_connections(server, 100, stack)
            for _ in range(3):
                assert get_anew(server) == 200
        assert "accept failed, will retry: error=[Errno 24] Too many open files" in ours.log.read_text()
        assert "reason='too many open files'" in ours.log.read_text()


def test_limits_follow_the_limit_of_open_files() -> None:
    assert limits_for(1024).connections == 768
    assert limits_for(1 << 20).connections == 32768
    assert limits_for(1 << 20, connections=100).connections == 100
    assert limits_for(64).connections == 32
