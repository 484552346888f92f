"""Point 32: a resource version older than the history is expired, with the error that clients expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance.objects import config_map
from tests.support.kubernetes import MISSING, Kubernetes, Server, assets
from tests.support.yard import Yard

AT = "/api/v1/namespaces/default/configmaps"
Forgetful = tuple[Server, Callable[[], None]]


@pytest.fixture(params=["yard", "kube"])
def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forgetful]:
    """A separate server, and a way to compact its history."""
    if request.param == "kube":
        if assets() is None:
            pytest.skip(MISSING)
        kubernetes = Kubernetes(tmp_path)
        with kubernetes as server:
            yield server, lambda: kubernetes.forget_history(server)
    else:
        ours = Yard(tmp_path)
        with ours as server:
            yield server, ours.forget_history


@pytest.mark.point(32)
def test_a_version_older_than_the_history_is_expired(forgetful: Forgetful) -> None:
    server, forget = forgetful
    for name in ("a", "b", "c"):
        assert server.admin.post(AT, config_map(name)).status == 201
    page = server.admin.get(AT, query={"limit": 1}).json["metadata"]
    old = page["resourceVersion"]
    assert server.admin.patch(f"{AT}/a", {"data": {"a": "2"}}).status == 200
    forget()
    assert len(server.admin.get(AT).json["items"]) >= 3
    with server.admin.watch(AT, query={"resourceVersion": old}) as watch:
        assert watch.status in (200, 410)
        status = watch.refusal.json if watch.refusal else watch.next()["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {old} (")
    exact = server.admin.get(AT, query={"resourceVersion": old, "resourceVersionMatch": "Exact"})
    assert (exact.status, exact.reason) == (410, "Expired")
    rest = server.admin.get(AT, query={"limit": 1, "continue": page["continue"]})
    assert (rest.status, rest.reason) == (410, "Expired")
    assert "continue" in rest.message
    # The refusal carries a token to go on without consistency.
    rest = server.admin.get(AT, query={"limit": 10, "continue": rest.json["metadata"]["continue"]})
    assert rest.status == 200
    assert [item["metadata"]["name"] for item in rest.json["items"]][:2] == ["b", "c"]
