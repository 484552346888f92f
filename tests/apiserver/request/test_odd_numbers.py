"""Numbers in queries that only look like numbers."""

from __future__ import annotations

import pytest
from tests.support.kubernetes import Server

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize("port", ["²", "٣", "9" * 5000, "-1", "80,²"])
def test_a_port_that_is_none_is_no_error_of_the_server(yard: Server, port: str) -> None:
    name = "odd-ports"
    yard.admin.post(PODS, {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "i"}]}})
    answer = yard.admin.request("GET", f"{PODS}/{name}/portforward", query={"ports": port})
    assert (answer.status, answer.message) == (400, f"pod {name} does not have a host assigned")
