"""Every page at a real kube-apiserver, with queues by Kueue's definitions and objects as kubelets would write them.

No kubelet runs, so nothing logs: the tests of a real node (`test_real_node.py`) and of the plane read logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.console.pages.jobs import JOBS, container
from tests.support import queues as builders
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.queue.crd import definitions
from torchyard.operator.manifests import definitions as job_definitions

pytestmark = pytest.mark.cluster
SPACE = "kubernetes-pages"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OWN_JOBS = JOBS.replace("/default/", f"/{SPACE}/")
OWN_PYTORCHJOBS = f"/apis/kubeflow.org/v1/namespaces/{SPACE}/pytorchjobs"
CORE = f"/api/v1/namespaces/{SPACE}"
STARTED = "2026-01-01T10:00:00Z"


def create(kube: Server, path: str, body: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    created = kube.admin.post(path, {**_typed(path), **body})
    assert created.status in (201, 409), created
    name = body["metadata"]["name"]
    if status is not None:
        assert kube.admin.patch(f"{path}/{name}/status", {"status": status}).status == 200
    result: dict[str, Any] = kube.admin.get(f"{path}/{name}").json
    return result


def _typed(path: str) -> dict[str, str]:
    """What a custom resource must say of itself."""
    kinds = {"resourceflavors": "ResourceFlavor", "clusterqueues": "ClusterQueue", "localqueues": "LocalQueue"}
    kind = {**kinds, "workloads": "Workload"}.get(path.rpartition("/")[2])
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind} if kind else {}


def is_served(kube: Server, path: str) -> bool:
    return kube.admin.get(path).status == 200


@pytest.fixture(scope="module")
def cluster(driver: None, kube: Server) -> Iterator[Server]:
    """The server, with what the pages show. Other tests need it without Kueue."""
    created = []
    for definition in (*definitions(), *job_definitions()):
        status = kube.admin.post(CRDS, definition).status
        assert status in (201, 409)
        if status == 201:
            created.append(f"{CRDS}/{definition['metadata']['name']}")
    for path in (f"{KUEUE}/clusterqueues", f"{KUEUE}/workloads", "/apis/kubeflow.org/v1/pytorchjobs"):
        eventually(lambda path=path: is_served(kube, path), f"{path} is served")  # type: ignore[misc]
    assert kube.admin.post("/api/v1/namespaces", {"metadata": {"name": SPACE}}).status in (201, 409)
    _create_node_and_volume(kube)
    _create_job(kube)
    _create_queues(kube)
    yield kube
    for path in created:
        kube.admin.delete(path)
    for path in created:
        eventually(lambda path=path: kube.admin.get(path).status == 404, f"{path} is deleted")  # type: ignore[misc]


def _create_node_and_volume(kube: Server) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": STARTED}
    image = {"names": ["registry.example/train:1@sha256:ab", "registry.example/train:1"], "sizeBytes": 2_500_000_000}
    allocatable = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"}
    status = {"conditions": [ready], "allocatable": allocatable, "capacity": allocatable, "images": [image]}
    create(kube, "/api/v1/nodes", {"metadata": {"name": "gpu-node"}}, status)
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": ""}
    volume = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/data"}}
    reference = {"claimRef": {"namespace": SPACE, "name": "data"}}
    create(kube, "/api/v1/persistentvolumes", {"metadata": {"name": "data"}, "spec": {**volume, **reference}})
    create(
        kube, f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": {**claim, "volumeName": "data"}}
    )


def _create_job(kube: Server) -> None:
    """A PyTorchJob of a master that runs and a worker that failed."""
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container("train")]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}
    conditions = [{"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "It runs."}]
    job = create(
        kube,
        OWN_PYTORCHJOBS,
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "vision"}, "spec": spec},
        {"conditions": [{**each, "lastTransitionTime": STARTED} for each in conditions], "startTime": STARTED},
    )
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "vision", "uid": job["metadata"]["uid"]}
    for role, state in (
        ("master", {"running": {"startedAt": STARTED}}),
        (
            "worker",
            {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": STARTED, "finishedAt": STARTED}},
        ),
    ):
        labels = {
            "training.kubeflow.org/job-name": "vision",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": "0",
        }
        main = container("train", resources={"limits": {"nvidia.com/gpu": "2", "cpu": "2", "memory": "4Gi"}})
        main |= {"image": "registry.example/train:1", "env": [{"name": "RANK", "value": str(int(role == "worker"))}]}
        main["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        metadata = {"name": f"vision-{role}-0", "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
        status = {
            "name": "pytorch",
            "state": state,
            "ready": role == "master",
            "restartCount": 2,
            "image": "",
            "imageID": "",
        }
        phase = "Running" if role == "master" else "Failed"
        pod_spec = {"nodeName": "gpu-node", "containers": [main], "volumes": volumes, "restartPolicy": "Never"}
        pod = {"metadata": metadata, "spec": pod_spec}
        create(kube, f"{CORE}/pods", pod, {"phase": phase, "startTime": STARTED, "containerStatuses": [status]})
    event = {"involvedObject": {**owner, "namespace": SPACE}, "type": "Warning", "reason": "OOMKilled", "count": 3}
    create(kube, f"{CORE}/events", {"metadata": {"name": "vision.1"}, "message": "worker-0 needs more", **event})


def _create_queues(kube: Server) -> None:
    create(kube, f"{KUEUE}/resourceflavors", builders.flavor("any"))
    quota = builders.group(("any", [builders.quota("cpu", 8)]))
    usage = [{"name": "any", "resources": [{"name": "cpu", "total": "6"}]}]
    counts = {"flavorsUsage": usage, "flavorsReservation": usage, "pendingWorkloads": 2, "admittedWorkloads": 1}
    queue = {"metadata": {"name": "team"}, "spec": {"namespaceSelector": {}, "resourceGroups": [quota]}}
    create(kube, f"{KUEUE}/clusterqueues", queue, counts)
    for name in ("first", "second"):
        create(
            kube,
            f"{KUEUE}/namespaces/{SPACE}/localqueues",
            {"metadata": {"name": name}, "spec": {"clusterQueue": "team"}},
        )
    for name, priority in (("holds", 0), ("urgent", 100), ("patient", 1)):
        body = {"metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "first"}}, "spec": _SUSPENDED}
        job = create(kube, OWN_JOBS, body)
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        sets = [{"name": "main", "count": 1, "template": {"spec": _POD}}]
        spec = {"queueName": "first", "priority": priority, "podSets": sets}
        workload = {"metadata": {"name": f"job-{name}", "ownerReferences": [owner]}, "spec": spec}
        pending = {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": f"{name} needs 4 more cpu",
        }
        admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 1}]}
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
        admitted = {"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""}
        conditions = [reserved, admitted] if name == "holds" else [pending]
        status: dict[str, Any] = {"conditions": [{**each, "lastTransitionTime": STARTED} for each in conditions]}
        if name == "holds":
            status["admission"] = admission
        create(kube, f"{KUEUE}/namespaces/{SPACE}/workloads", workload, status)


_POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
_SUSPENDED = {"suspend": True, "template": {"spec": _POD}}


@pytest.fixture(scope="module")
def cluster_link(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_console(cluster.kubeconfig, tmp_path_factory.mktemp("console")) as link:
        yield link


@pytest.fixture(scope="module")
def cluster_profile(chromium: Any, cluster_link: str) -> Any:
    return sign_in(chromium, cluster_link)


@pytest.fixture
def pages(cluster_link: str, cluster_profile: Any) -> Iterator[Console]:
    console = Console(cluster_link.partition("#")[0], cluster_profile)
    yield console
    console.close()
    assert console.errors == []


JOB = f"/job/{SPACE}/pytorchjobs.kubeflow.org/vision"


def test_the_job_shows_replicas_events_and_its_manifest(pages: Console) -> None:
    page = pages.open(f"/jobs?ns={SPACE}")
    page.locator(".job-row", has_text="vision").click()
    worker = page.locator("tr", has_text="worker-0")
    worker.locator("text=exit code 137 (OOMKilled)").wait_for()
    assert worker.locator("td").nth(1).inner_text() == "1"
    assert worker.locator("td").nth(7).inner_text() == "2"
    page.keyboard.press("e")
    page.locator("td", has_text="worker-0 needs more").wait_for()
    page.keyboard.press("y")
    page.locator(".yaml", has_text="kind: PyTorchJob").wait_for()
    page.keyboard.press("m")
    page.locator("text=No metrics yet.").wait_for()
    page.keyboard.press("l")
    page.locator("text=No log lines yet.").wait_for()


def test_queues_show_quota_order_and_reasons_and_hold_resume_and_move(pages: Console, cluster: Server) -> None:
    page = pages.open(f"/queues?ns={SPACE}")
    card = page.locator("section.card", has=page.locator("h2", has_text="team"))
    card.locator("[role=meter][aria-label='cpu: 6 of 8']").wait_for()
    waiting = card.locator("table").first.locator("tbody tr")
    waiting.nth(1).wait_for()
    assert [row.locator("td").first.inner_text() for row in waiting.all()] == ["urgent", "patient"]
    waiting.first.locator("text=urgent needs 4 more cpu").wait_for()
    waiting.filter(has_text="patient").get_by_role("button", name="Hold").click()
    waiting.filter(has_text="patient").locator("td", has_text="Held").wait_for()
    path = f"{KUEUE}/namespaces/{SPACE}/workloads/job-patient"
    assert cluster.admin.get(path).json["spec"]["active"] is False
    waiting.filter(has_text="patient").get_by_role("button", name="Resume").click()
    waiting.filter(has_text="patient").locator("td", has_text="Pending").wait_for()
    assert cluster.admin.get(path).json["spec"]["active"] is True
    card.locator("tr", has_text="holds").get_by_role("button", name="Hold").click()
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    waiting.filter(has_text="urgent").get_by_role("button", name="Move").click()
    page.locator("dialog").get_by_label("LocalQueue").select_option("second")
    page.locator("dialog").get_by_role("button", name="Move").click()
    page.locator(".toasts", has_text="urgent is queued in second").wait_for()
    labels = cluster.admin.get(f"{OWN_JOBS}/urgent").json["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "second"


def test_overview_nodes_volumes_images_and_history_show_the_cluster(pages: Console) -> None:
    page = pages.open(f"/overview?ns={SPACE}")
    page.locator("a.count.running b", has_text="1").wait_for()
    page.locator("section", has_text="Nodes").locator("[role=meter][aria-label='nvidia.com/gpu: 2 of 4']").wait_for()
    page.locator("section", has_text="Queues").locator("text=1 admitted, 2 pending").wait_for()

    pages.go(page, f"/nodes?node=gpu-node&ns={SPACE}")
    page.locator("tr", has_text="vision-master-0").wait_for()
    assert page.locator("tr", has_text="vision-worker-0").count() == 0, "it has ended"
    pages.go(page, f"/volumes?ns={SPACE}")
    page.locator("tr", has_text="data").locator("td", has_text="vision-master-0").wait_for()
    page.locator("section", has_text="PersistentVolumes").locator("tr", has_text=f"{SPACE}/data").wait_for()
    pages.go(page, f"/images?ns={SPACE}")
    row = page.locator("tr", has_text="registry.example/train:1")
    row.locator("td", has_text="2.33 GiB").wait_for()
    row.locator("a", has_text=f"{SPACE}/vision").wait_for()
    pages.go(page, f"/history?ns={SPACE}")
    page.locator("text=This server keeps no history").wait_for()


def test_runs_are_compared(pages: Console) -> None:
    one = f"{SPACE}/pytorchjobs.kubeflow.org/vision"
    page = pages.open(f"/compare?jobs={one},{SPACE}/jobs.batch/urgent")
    page.locator("tr", has_text="image").locator("td", has_text="busybox").wait_for()
    page.locator("text=No metrics yet.").wait_for()


def test_every_page_of_the_cluster_fits_a_phone_and_has_no_serious_axe_findings(pages: Console, axe: str) -> None:
    findings: dict[str, list[str]] = {}
    page = pages.window(width=360, dark=True)
    for route in ("/overview", "/jobs", JOB, "/queues", "/nodes", "/volumes", "/images", "/history"):
        pages.go(page, f"{route}?ns={SPACE}")
        page.locator("h1").wait_for()
        page.locator("text=Loading…").first.wait_for(state="detached")
        if (overflow := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            findings.setdefault(route, []).append(f"{overflow} pixels too wide")
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(result => result.violations)")
        serious = [each for each in violations if each["impact"] in ("serious", "critical")]
        findings.setdefault(route, []).extend(f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in serious)
    assert {route: each for route, each in findings.items() if each} == {}
