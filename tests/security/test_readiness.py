"""/readyz and /livez fail while nothing can be written, and recover; a locked database does not stop the reads."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    ours = Yard(tmp_path_factory.mktemp("readiness"), controllers="-*")
    with ours:
        yield ours


@pytest.fixture
def server(yard: Yard) -> Server:
    server = yard.server()
    assert server.admin.get("/readyz").text == "ok"
    return server


def test_verbose_names_each_check(server: Server) -> None:
    for root in ("readyz", "livez", "healthz"):
        lines = server.admin.get(f"/{root}?verbose").text.splitlines()
        assert lines[0] == "[+]ping ok"
        assert "[+]store ok" in lines
        assert lines[-1] == f"{root} check passed"
    assert server.admin.get("/readyz/store").text == "ok"


def test_readyz_fails_while_the_disk_is_full(yard: Yard, server: Server) -> None:
    assert yard.process is not None
    process = psutil.Process(yard.process.pid)
    # Files cannot grow any more: to SQLite this is a full disk.
    _, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        assert server.admin.post(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}).status == 500
        for path in ("/readyz", "/livez"):
            answer = server.admin.get(path)
            assert answer.status == 500
            assert "[-]store failed: " in answer.text
            assert answer.text.endswith(f"{path[1:]} check failed\n")
        assert server.admin.get("/readyz/ping").status == 200
        assert server.admin.get("/readyz?exclude=store").status == 200
        assert server.admin.get("/api/v1/namespaces/default").status == 200  # reads go on
    finally:
        process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))
    eventually(lambda: server.admin.get("/readyz").text == "ok", "recovery")
    assert server.admin.post(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}).status == 201


def test_a_locked_database_delays_writes_and_nothing_else(yard: Yard, server: Server) -> None:
    other = sqlite3.connect(yard.state / "store.db", isolation_level=None)
    statuses: list[int] = []
    try:
        other.execute("BEGIN IMMEDIATE")
        body = {"metadata": {"generateName": "waits-"}}
        writer = threading.Thread(target=lambda: statuses.append(server.admin.post(CONFIG_MAPS, body).status))
        writer.start()
        for _ in range(20):
            assert server.admin.get("/api/v1/namespaces/default").status == 200
        assert server.admin.get("/readyz/ping").status == 200
        assert statuses == []
        other.execute("ROLLBACK")
        writer.join(timeout=30)
    finally:
        other.close()
    assert statuses == [201]


def test_readyz_notices_a_lock_without_any_write(tmp_path: Path) -> None:
    with Yard(tmp_path, controllers="-*") as server:
        other = sqlite3.connect(tmp_path / "state" / "store.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            eventually(lambda: "[-]store failed: timed out" in server.admin.get("/readyz").text, "the failed check")
            other.execute("ROLLBACK")
            eventually(lambda: server.admin.get("/readyz").text == "ok", "recovery")
        finally:
            other.close()
