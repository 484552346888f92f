"""Grace periods that are longer than a time can express: users write any int64."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.kubernetes import Server

PODS = "/api/v1/namespaces/default/pods"
LONGEST = 2**63 - 1


@pytest.mark.parametrize("where", ["spec", "body", "query"])
def test_a_pod_with_the_longest_grace_period_can_be_deleted_and_then_removed(yard: Server, where: str) -> None:
    api, name = yard.admin, f"longest-grace-{where}"
    spec: dict[str, Any] = {"nodeName": "somewhere", "containers": [{"name": "main", "image": "i"}]}
    if where == "spec":
        spec["terminationGracePeriodSeconds"] = LONGEST
    api.post(PODS, {"metadata": {"name": name}, "spec": spec})
    deleted = api.delete(
        f"{PODS}/{name}",
        {"gracePeriodSeconds": LONGEST} if where == "body" else None,
        query={"gracePeriodSeconds": str(LONGEST)} if where == "query" else {},
    )
    assert deleted.status == 200
    metadata = api.get(f"{PODS}/{name}").json["metadata"]
    assert metadata["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    assert metadata["deletionGracePeriodSeconds"] == LONGEST
    shorter = api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 5}).json["metadata"]
    assert shorter["deletionTimestamp"] < "2100"
    assert api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0}).status == 200
    assert api.get(f"{PODS}/{name}").status == 404
