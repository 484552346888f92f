"""The same tests run against our server and a real one: `server` is each of them.

A definition takes the real server two seconds, so tests with definitions of their own run there with full effort only.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.objects import Definitions, Space
from tests.support.effort import FULL
from tests.support.http import Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

SLOW = pytest.mark.skip(reason="takes the real server seconds; tried with full effort")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FULL or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        if item.callspec.params.get("server") == "kube" and "crds" in item.fixturenames:
            item.add_marker(SLOW)


@pytest.fixture(scope="session", params=["yard", "kube"])
def server(request: pytest.FixtureRequest) -> Server:
    """Ours, then the real one. A test that fails on the real one is wrong."""
    result: Server = request.getfixturevalue(request.param)
    return result


@pytest.fixture
def api(server: Server) -> Client:
    return server.admin


@pytest.fixture
def space(api: Client) -> Space:
    """A fresh namespace with its service account."""
    answer = api.post("/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    assert answer.status == 201, answer
    created = Space(api, answer.json["metadata"]["name"])
    eventually(lambda: not created.gone("serviceaccounts", "default"), "the default service account")
    return created


@pytest.fixture
def crds(api: Client) -> Iterator[Definitions]:
    """Creates CRDs and waits until they are served; removes them afterwards."""
    definitions = Definitions(api)
    yield definitions
    definitions.remove()
