"""The parts of points 18, 21 and 64 that need a node: on our node agent, and on a real kubelet.

The real node is the one of the cluster whose kubeconfig TORCHYARD_REAL_NODE names; it must have a `busybox` image.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.conformance.objects import Object, Space, path
from tests.node import support
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server, from_kubeconfig
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

LEASES = path("leases", namespace="kube-node-lease")


@pytest.fixture(scope="module", params=["yard", "kube"])
def with_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("node")
    if request.param == "kube":
        named = os.environ.get("TORCHYARD_REAL_NODE")
        if not named:
            pytest.skip("no real node here: TORCHYARD_REAL_NODE names no kubeconfig")
        yield from_kubeconfig("kube", Path(named), directory)
        return
    support.need_sandbox()
    ours = Yard(directory, flags=("--node", "--node-name", "here"))
    with ours as server:
        yield server
        asyncio.run(stop_pods(ours.state / "node"))


@pytest.fixture
def server(with_node: Server) -> Server:
    return with_node


@pytest.fixture
def kubectl(server: Server, space: Space, tmp_path: Path) -> Kubectl:
    newest = kubectls.need()
    return newest.using(server.kubeconfig, tmp_path, space.name)


def started(space: Space, script: str, *, grace: int = 2) -> Object:
    """A pod that runs a script; returns when it is running."""
    main = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
    created = space.make(
        "pods",
        {
            "metadata": {"name": "p"},
            "spec": {"terminationGracePeriodSeconds": grace, "restartPolicy": "Never", "containers": [main]},
        },
    )
    eventually(lambda: space.get("pods", "p")["status"].get("phase") == "Running", "the pod runs", 120)
    return created


@pytest.mark.point(18)
def test_a_running_pod_shows_its_log_and_runs_commands(space: Space, kubectl: Kubectl) -> None:
    started(space, "echo one; echo two; sleep 600")
    log = space.path("pods", "p", "log")
    eventually(lambda: space.api.get(log).text == "one\ntwo\n", "the log", 30)
    assert space.api.get(log, query={"tailLines": 1}).text == "two\n"
    assert space.api.get(log, query={"limitBytes": 2}).text == "on"
    stamped = space.api.get(log, query={"timestamps": "true", "tailLines": 1}).text
    datetime.fromisoformat(stamped.split(" ")[0][:26].rstrip("Z"))
    refused = space.api.get(log, query={"tailLines": -1})
    assert (refused.status, refused.causes[0]["field"]) == (422, "tailLines")
    before = space.api.get(log, query={"previous": "true"})
    assert (before.status, before.reason) == (400, "BadRequest")
    assert 'previous terminated container "main" in pod "p" not found' in before.message
    assert kubectl("exec", "p", "--", "echo", "inside") == "inside\n"
    assert kubectl.run("exec", "p", "--", "sh", "-c", "exit 5").returncode == 5
    space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 0})


@pytest.mark.point(21)
def test_the_node_finishes_a_graceful_deletion(space: Space) -> None:
    created = started(space, "trap 'sleep 1; exit 0' TERM; while true; do sleep 0.1; done", grace=20)
    since = space.api.get(space.path("pods")).json["metadata"]["resourceVersion"]
    with space.api.watch(space.path("pods"), query={"resourceVersion": since}) as watch:
        answer = space.api.delete(space.path("pods", "p"))
        assert (answer.status, answer.json["metadata"]["deletionGracePeriodSeconds"]) == (200, 20)
        assert space.get("pods", "p")["metadata"]["uid"] == created["metadata"]["uid"]
        while (event := watch.next(timeout=40))["type"] != "DELETED":
            assert event["object"]["metadata"]["deletionTimestamp"]
    last = event["object"]
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    (main,) = last["status"]["containerStatuses"]
    assert main["state"]["terminated"]["exitCode"] == 0
    assert space.gone("pods", "p")


@pytest.mark.point(64)
def test_a_node_has_a_heartbeat_lease(server: Server) -> None:
    def nodes() -> list[Object]:
        items: list[Object] = server.admin.get(path("nodes")).json["items"]
        return items

    def lease() -> Object:
        obj: Object = server.admin.get(f"{LEASES}/{name}").json
        return obj

    eventually(lambda: bool(nodes()), "the node registers", 30)
    (node,) = nodes()
    name = node["metadata"]["name"]
    eventually(lambda: "spec" in lease(), "the first heartbeat", 30)
    first = lease()
    assert (first["spec"]["holderIdentity"], first["spec"]["leaseDurationSeconds"]) == (name, 40)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    assert first["metadata"]["ownerReferences"] == [owner]
    eventually(lambda: lease()["spec"]["renewTime"] > first["spec"]["renewTime"], "the next heartbeat", 60)
    assert {item["type"]: item["status"] for item in node["status"]["conditions"]}["Ready"] == "True"
