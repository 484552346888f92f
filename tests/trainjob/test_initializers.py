"""A TrainJob with an initializer on a plane with a node, by the runtime of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.node.support import need_network
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = f"{TRAINER}/namespaces/default/trainjobs"
PAGE = (ROOT / "docs" / "trainjobs.md").read_text().partition("\n## Initializers")[2].partition("\n## ")[0]
RUNTIME, JOB = [yaml.safe_load(part.partition("```")[0]) for part in PAGE.split("```yaml\n")[1:]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("initializers"), controllers="*", flags=("--node",))
    try:
        yield plane.start()
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


def run(server: Server, name: str, uri: str) -> dict[str, Any]:
    spec = {**JOB["spec"], "initializer": {"dataset": {"storageUri": uri}}}
    assert server.admin.post(JOBS, {**JOB, "metadata": {"name": name}, "spec": spec}).status == 201

    def status() -> dict[str, Any]:
        return server.admin.get(f"{JOBS}/{name}").json.get("status") or {}

    eventually(lambda: status().get("state") in ("Complete", "Failed"), "the end of the job", 120)
    return status()


def test_the_nodes_find_what_the_initializer_brought(server: Server) -> None:
    created = server.admin.post(f"{TRAINER}/clustertrainingruntimes", RUNTIME)
    assert created.status == 201, created.message
    assert run(server, "trained", "file:///etc/hostname")["state"] == "Complete"
    log = server.admin.get("/api/v1/namespaces/default/pods?labelSelector=jobset.sigs.k8s.io/jobset-name=trained").json
    (node,) = [pod for pod in log["items"] if "-node-" in pod["metadata"]["name"]]
    printed = server.admin.get(f"/api/v1/namespaces/default/pods/{node['metadata']['name']}/log?container=node")
    assert "hostname" in printed.text

    failed = run(server, "untrained", "file:///no/such")
    assert failed["state"] == "Failed"
    assert "file:///no/such' names /no/such, which does not exist" in failed["conditions"][-1]["message"]
