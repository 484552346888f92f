"""The quota controller on a running plane: the status follows created and deleted objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

CORE = "/api/v1/namespaces/default"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("quotas")
    with Yard(directory, controllers="*") as server:
        yield server


def used(server: Server, name: str) -> dict[str, Any]:
    status: dict[str, Any] = server.admin.get(f"{CORE}/resourcequotas/{name}").json.get("status") or {}
    return status.get("used") or {}


def test_the_status_follows_created_and_deleted_objects(plane: Server) -> None:
    hard = {"count/secrets": "9", "services": "9"}
    body = {"metadata": {"name": "things"}, "spec": {"hard": hard}}
    assert plane.admin.post(f"{CORE}/resourcequotas", body).status == 201
    eventually(lambda: used(plane, "things") == {"count/secrets": "0", "services": "1"}, "the count")
    assert plane.admin.get(f"{CORE}/resourcequotas/things").json["status"]["hard"] == hard
    for name in ("a", "b"):
        assert plane.admin.post(f"{CORE}/secrets", {"metadata": {"name": name}}).status == 201
    eventually(lambda: used(plane, "things")["count/secrets"] == "2", "the count")
    plane.admin.delete(f"{CORE}/secrets/a")
    eventually(lambda: used(plane, "things")["count/secrets"] == "1", "the count")


def test_a_changed_limit_appears_in_the_status(plane: Server) -> None:
    body = {"metadata": {"name": "maps"}, "spec": {"hard": {"configmaps": "9"}}}
    plane.admin.post(f"{CORE}/resourcequotas", body)
    eventually(lambda: "configmaps" in used(plane, "maps"), "the count")
    patch = {"spec": {"hard": {"configmaps": None, "services": "3"}}}
    assert plane.admin.patch(f"{CORE}/resourcequotas/maps", patch).status == 200
    eventually(lambda: used(plane, "maps") == {"services": "1"}, "the count")
