"""Thousands of watches at once: each receives every event, and costs little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.effort import rounds
from tests.support.waiting import eventually
from tests.support.yard import Yard

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WATCHES = rounds(500, 10_000)
EVENTS = 3
KILOBYTE = 1 << 10
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < WATCHES + 1000:
        pytest.skip(f"this machine allows {hard} open files only")
    ours = Yard(tmp_path, controllers="-*", flags=("--max-connections", str(WATCHES + 200)))
    with ours:
        yield ours


def test_every_watch_receives_every_event(yard: Yard) -> None:
    server = yard.server()
    assert yard.process is not None
    process = psutil.Process(yard.process.pid)
    assert server.admin.get(f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1").status == 200
    since = server.admin.get(CONFIG_MAPS).json["metadata"]["resourceVersion"]
    before = process.memory_info().rss
    program = [sys.executable, "-m", "tests.security.watch_client", server.url, str(server.ca), server.token]
    path = f"{CONFIG_MAPS}?watch=true&resourceVersion={since}"
    client = subprocess.Popen([*program, path, str(WATCHES), str(EVENTS)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == f"open {WATCHES}\n"
        each = (process.memory_info().rss - before) // WATCHES
        for number in range(EVENTS):
            assert server.admin.post(CONFIG_MAPS, {"metadata": {"name": f"event-{number}"}}).status == 201
        assert client.stdout.readline() == f"received {WATCHES * EVENTS}\n"
        assert server.admin.get("/api/v1/namespaces/default").status == 200
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    print(f"{WATCHES} watches, {each // KILOBYTE} KiB each")
    assert each < 150 * KILOBYTE
    eventually(
        lambda: 'apiserver_longrunning_requests{verb="WATCH"} 0.0' in server.admin.get("/metrics").text, "the end"
    )
