"""SIGSTOP of clients and of the plane: nothing is lost, others go on, and memory stays bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.security.raw import connected, head
from tests.support.accounts import wait_for_account
from tests.support.effort import rounds
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MEGABYTE = 1 << 20
PAUSE = rounds(3, 60)  # seconds; the pause itself is what is tested

# Watches and prints the value of each event.
WATCHER = """
import http.client, json, ssl, sys
url, token, ca, path = sys.argv[1:]
host, port = url.removeprefix("https://").split(":")
connection = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=ca))
connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
response = connection.getresponse()
print("watching", flush=True)
while line := response.readline():
    print(json.loads(line)["object"]["data"]["v"], flush=True)
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    ours = Yard(tmp_path_factory.mktemp("stopped"))
    with ours:
        yield ours


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def watcher(server: Server, path: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WATCHER, server.url, server.token, str(server.ca), path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "watching\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_stopped_watcher_misses_nothing_once_it_continues(yard: Yard) -> None:
    server = yard.server()
    assert server.admin.post(CONFIG_MAPS, {"metadata": {"name": "watched"}, "data": {"v": "0"}}).status == 201
    since = server.admin.get(CONFIG_MAPS).json["metadata"]["resourceVersion"]
    selector = "fieldSelector=metadata.name%3Dwatched"
    with watcher(server, f"{CONFIG_MAPS}?watch=true&resourceVersion={since}&{selector}") as process:
        count = 300
        with stopped(process.pid):
            for number in range(1, count + 1):
                body = {"data": {"v": str(number), "pad": "x" * 5000}}
                assert server.admin.patch(f"{CONFIG_MAPS}/watched", body).status == 200
        assert process.stdout is not None
        seen = [process.stdout.readline().strip() for _ in range(count)]
    assert seen == [str(number) for number in range(1, count + 1)]


def test_watchers_that_never_read_do_not_take_memory_each(yard: Yard) -> None:
    server = yard.server()
    assert yard.process is not None
    assert server.admin.post(CONFIG_MAPS, {"metadata": {"name": "large"}}).status == 201
    since = server.admin.get(CONFIG_MAPS).json["metadata"]["resourceVersion"]
    before = psutil.Process(yard.process.pid).memory_info().rss
    watchers = 50
    with contextlib.ExitStack() as stack:
        for _ in range(watchers):
            peer = stack.enter_context(connected(server))
            peer.sendall(head("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion={since}", token=server.token))
        for number in range(120):
            assert (
                server.admin.patch(f"{CONFIG_MAPS}/large", {"data": {"v": str(number), "pad": "x" * 100_000}}).status
                == 200
            )
        grown = psutil.Process(yard.process.pid).memory_info().rss - before
    # 12 MB of events, which all watchers share, and what is on its way to each of them; not 12 MB for each.
    assert grown < watchers * 4 * MEGABYTE, f"{grown // MEGABYTE} MB more"


def test_a_plane_that_was_stopped_goes_on(yard: Yard) -> None:
    server, process = yard.server(), yard.process
    assert process is not None
    assert server.admin.post(CONFIG_MAPS, {"metadata": {"name": "before"}, "data": {"v": "1"}}).status == 201
    since = server.admin.get(CONFIG_MAPS).json["metadata"]["resourceVersion"]
    with server.admin.watch(CONFIG_MAPS, query={"resourceVersion": since}) as watch:
        with stopped(process.pid):
            time.sleep(PAUSE)
        assert server.admin.patch(f"{CONFIG_MAPS}/before", {"data": {"v": "2"}}).status == 200
        assert watch.next()["object"]["data"]["v"] == "2"  # on the connection from before
    assert server.admin.get("/readyz").text == "ok"
    eventually(lambda: "process was stopped: seconds=" in yard.log.read_text(), "the log line")
    assert "Traceback" not in yard.log.read_text()
    namespace = {"metadata": {"name": "after-the-pause"}}
    assert server.admin.post("/api/v1/namespaces", namespace).status == 201
    wait_for_account(server.admin, "after-the-pause")  # a controller that works


def test_a_request_that_was_sent_to_a_stopped_plane_is_answered(yard: Yard, tmp_path: Path) -> None:
    server, process = yard.server(), yard.process
    assert process is not None
    with connected(server) as peer, stopped(process.pid):
        peer.sendall(head("GET", "/version", token=server.token))
        time.sleep(1)  # the plane does not answer
        os.kill(process.pid, signal.SIGCONT)
        assert peer.recv(100).startswith(b"HTTP/1.1 200 OK")
