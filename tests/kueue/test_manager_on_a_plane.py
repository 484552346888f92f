"""Upstream's Kueue on a plane with our queues off: Jobs of real pods wait, are preempted, run and finish.

Full effort only, where `shared/peers` has Kueue for this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kueue.peers import MISSING, has_kueue, kueue_manager
from tests.node.support import need_network
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FULL, reason="a plane with Kueue's own manager: TORCHYARD_TESTS=full"),
    pytest.mark.skipif(not has_kueue(), reason=MISSING),
]

Object = dict[str, Any]
SPACE = "/apis/batch/v1/namespaces/default/jobs"
API = "kueue.x-k8s.io/v1beta2"
QUEUES = f"/apis/{API}"
WORKLOADS = f"{QUEUES}/namespaces/default/workloads"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_network()
    directory = tmp_path_factory.mktemp("plane")
    with Yard(directory, node=True, controllers="*,-kueue") as server, kueue_manager(server, directory):
        yield server


def create(server: Server, path: str, kind: str, name: str, **content: Any) -> None:
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **content}
    # Kueue's webhooks may not listen yet.
    eventually(lambda: server.admin.post(path, body).status in (201, 409), f"{kind} {name}", PATIENCE)


def job(name: str, *, cpu: str, priority: str = "", seconds: int = 0) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "user", **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
    container = {
        "name": "main",
        "image": "python",
        "command": ["python3", "-c", f"import time; time.sleep({seconds})"],
        "resources": {"requests": {"cpu": cpu}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


def submit(server: Server, name: str, **options: Any) -> None:
    created = server.admin.post(SPACE, job(name, **options))
    assert created.status == 201, created
    assert created.json["spec"]["suspend"] is True  # Kueue's webhook


def conditions(server: Server, path: str) -> dict[str, str]:
    return conditions_of(server.admin.get(path).json)


def conditions_of(obj: Object) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in obj.get("status", {}).get("conditions", ())}


def workload(server: Server, name: str) -> Object:
    for item in server.admin.get(WORKLOADS).json["items"]:
        if any(owner["name"] == name for owner in item["metadata"].get("ownerReferences", ())):
            found: Object = item
            return found
    return {}


def is_admitted(server: Server, name: str) -> bool:
    return {"Admitted": "True"}.items() <= conditions_of(workload(server, name)).items()


def is_pending(server: Server, name: str) -> bool:
    return conditions_of(workload(server, name)).get("QuotaReserved") == "False"


def is_complete(server: Server, name: str) -> bool:
    return conditions(server, f"{SPACE}/{name}").get("Complete") == "True"


def active(server: Server, name: str) -> int:
    return int(server.admin.get(f"{SPACE}/{name}").json.get("status", {}).get("active", 0))


def reasons(server: Server) -> set[str]:
    return {event["reason"] for event in server.admin.get("/api/v1/namespaces/default/events").json["items"]}


def test_kueue_admits_preempts_and_finishes_jobs_of_a_plane(server: Server) -> None:
    create(server, f"{QUEUES}/resourceflavors", "ResourceFlavor", "plain")
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    create(
        server,
        f"{QUEUES}/clusterqueues",
        "ClusterQueue",
        "all",
        spec={
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        },
    )
    local = f"{QUEUES}/namespaces/default/localqueues"
    create(server, local, "LocalQueue", "user", spec={"clusterQueue": "all"})
    create(server, f"{QUEUES}/workloadpriorityclasses", "WorkloadPriorityClass", "high", value=100)
    eventually(lambda: conditions(server, f"{local}/user").get("Active") == "True", "the queue is active", PATIENCE)
    submit(server, "low", cpu="1", seconds=3600)
    eventually(lambda: active(server, "low") == 1, "the first job runs", PATIENCE)
    submit(server, "high", cpu="1", priority="high")
    eventually(lambda: is_complete(server, "high"), "the job of high priority ends", PATIENCE)
    expected = {"Preempted", "QuotaReserved", "Admitted", "FinishedWorkload"}
    eventually(lambda: expected <= reasons(server), "the events of Kueue", PATIENCE)
    eventually(lambda: is_admitted(server, "low"), "the preempted job is admitted again", PATIENCE)
    eventually(lambda: active(server, "low") == 1, "the preempted job runs again", PATIENCE)
    submit(server, "second", cpu="1")
    eventually(lambda: is_pending(server, "second"), "the second job waits for quota", PATIENCE)
    assert server.admin.delete(f"{SPACE}/low", query={"propagationPolicy": "Background"}).status == 200
    eventually(lambda: is_complete(server, "second"), "the waiting job ends", PATIENCE)
    eventually(lambda: not workload(server, "low"), "the workload of the deleted job is gone", PATIENCE)
    # Our own queues do not look at the objects: Kueue's manager is the only writer of their status.
    managers = {field["manager"] for field in workload(server, "second")["metadata"]["managedFields"]}
    assert not any(manager.startswith("torchyard") for manager in managers), managers
