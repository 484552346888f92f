"""The document about a PyTorch task on a shared service, with a real kubectl on a plane that runs the pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node import support
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.clients

DOCUMENT = ROOT / "examples" / "queued-jobs"
PLACEHOLDER, QUEUE = "<project namespace>-user-queue", "default-user-queue"
CLAIM = "persistentVolumeClaim:\n            claimName: pytorch-pvc"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    support.need_sandbox()
    plane = Yard(tmp_path_factory.mktemp("queues"), flags=("--node", "--node-name", "here"))
    with plane:
        yield plane
        asyncio.run(stop_pods(plane.state / "node"))


@pytest.fixture
def kubectl(plane: Yard, tmp_path: Path) -> Kubectl:
    newest = kubectls.need()
    kube = newest.using(plane.kubeconfig, tmp_path / "cache", "default")
    eventually(lambda: QUEUE in kube.run("get", "localqueues").stdout, "the namespace's queues")
    return kube


def manifest(name: str, *, claim: bool = False) -> str:
    """A manifest of the document with the queue's name filled in; without a claim the volume is an emptyDir."""
    text = (DOCUMENT / name).read_text().replace(PLACEHOLDER, QUEUE)
    return text if claim else text.replace(CLAIM, "emptyDir: {}")


def create(kubectl: Kubectl, text: str) -> str:
    return kubectl("create", "-f", "-", "-o", "name", stdin=text).strip().removeprefix("job.batch/")


def workload(kubectl: Kubectl, job: str) -> dict[str, dict[str, str]]:
    """The conditions of a job's workload by type."""
    for item in json.loads(kubectl("get", "workloads", "-o", "json"))["items"]:
        if item["metadata"]["ownerReferences"][0]["name"] == job:
            return {condition["type"]: condition for condition in (item.get("status") or {}).get("conditions") or ()}
    return {}


def pods_of(kubectl: Kubectl, job: str) -> list[dict[str, object]]:
    listed = kubectl("get", "pods", "-l", f"job-name={job}", "-o", "json")
    items: list[dict[str, object]] = json.loads(listed)["items"]
    return items


@pytest.mark.row("S3.2")
def test_the_placeholder_of_the_queue_is_rejected_with_a_suggestion(kubectl: Kubectl) -> None:
    error = kubectl.fails("create", "-f", str(DOCUMENT / "lightweight-pod-job.yaml"))
    assert f'replace the placeholder in "{PLACEHOLDER}" with the name of your queue, for example {QUEUE}' in error


@pytest.mark.row("S3.2", "S3.3", "S3.4", "S3.7")
def test_a_job_is_suspended_admitted_run_and_deleted(kubectl: Kubectl, tmp_path: Path) -> None:
    job = create(kubectl, manifest("lightweight-pod-job.yaml"))
    assert job.startswith("lightweight-job-")
    eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in pods_of(kubectl, job)), "a running pod")  # type: ignore[index]
    pod = kubectl("get", "pods", "-l", f"job-name={job}", "-o", "name").strip().removeprefix("pod/")
    code = tmp_path / "example_pytorch_code.py"
    code.write_text("print('trained')\n" * 1000)
    kubectl("cp", str(code), f"{pod}:/mnt/ceph/")
    assert "example_pytorch_code.py" in kubectl("exec", pod, "--", "ls", "/mnt/ceph")
    kubectl("cp", f"{pod}:/mnt/ceph/example_pytorch_code.py", str(tmp_path / "back.py"))
    assert (tmp_path / "back.py").read_bytes() == code.read_bytes()
    assert workload(kubectl, job)["Admitted"]["message"] == "The workload is admitted"
    eventually(lambda: "SuccessfulCreate" in kubectl("describe", "job", job), "the events")
    described = kubectl("describe", "job", job)
    # kubectl does not sort events of the same second.
    for step in ("Suspended", "CreatedWorkload", "Started", "SuccessfulCreate", "Resumed"):
        assert f"  {step} " in described
    assert "Admitted by clusterQueue local" in described
    header, *lines = kubectl("get", "workloads").splitlines()
    assert header.split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
    assert any(line.split()[:4] == [line.split()[0], QUEUE, "local", "True"] for line in lines if job in line)
    header = kubectl("get", "localqueues").splitlines()[0]
    assert header.split() == ["NAME", "CLUSTERQUEUE", "PENDING", "WORKLOADS", "ADMITTED", "WORKLOADS"]
    assert kubectl("get", "clusterqueues").splitlines()[0].split() == ["NAME", "COHORT", "PENDING", "WORKLOADS"]
    kubectl("delete", "job", job)
    # `sleep` as the first process of a container ignores SIGTERM: it gets its whole grace period of 30 s.
    eventually(lambda: not pods_of(kubectl, job), "the end of its pods", seconds=90)
    eventually(lambda: not workload(kubectl, job), "the end of its workload")


@pytest.mark.row("S3.1")
def test_the_claim_is_bound(kubectl: Kubectl) -> None:
    kubectl("create", "-f", str(DOCUMENT / "pytorch-pvc.yaml"))
    eventually(lambda: "Bound" in kubectl("get", "pvc", "pytorch-pvc"), "the claim")
    kubectl("delete", "pvc", "pytorch-pvc")


@pytest.mark.row("S3.5")
def test_a_job_for_a_missing_gpu_waits_with_the_reason(kubectl: Kubectl) -> None:
    node = json.loads(kubectl("get", "node", "here", "-o", "json"))
    if "nvidia.com/gpu" in node["status"]["allocatable"]:
        pytest.skip("this machine has GPUs")
    job = create(kubectl, manifest("pytorch-job.yaml"))
    eventually(lambda: "QuotaReserved" in workload(kubectl, job), "the reason")
    condition = workload(kubectl, job)["QuotaReserved"]
    assert condition["status"] == "False"
    assert "resource nvidia.com/gpu unavailable in ClusterQueue; this machine has no GPU" in condition["message"]
    assert json.loads(kubectl("get", "job", job, "-o", "json"))["spec"]["suspend"] is True
    kubectl("delete", "job", job)


@pytest.mark.row("S3.6")
def test_three_completions_in_a_row(kubectl: Kubectl) -> None:
    text = manifest("pytorch-job-three-times.yaml").replace("cpu: 4", "cpu: 2").replace("cpu: 2", "cpu: 1", 1)
    text = text.replace("            nvidia.com/gpu: 1\n", "").replace(
        '["/mnt/ceph/example_pytorch_code.py"]', '["-c", "pass"]'
    )
    text = "\n".join(line for line in text.splitlines() if "nodeSelector" not in line and "gpu.product" not in line)
    text = text.replace("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel", "python:3.11").replace("3600", "8")
    job = create(kubectl, text)
    seen: dict[str, object] = {}

    def is_done() -> bool:
        job_object = json.loads(kubectl.run("get", "job", job, "-o", "json").stdout or "{}")
        seen.update(job_object.get("status") or {})
        return not job_object

    eventually(is_done, "the job's end after its time", 90)
    assert seen.get("succeeded") == 3
    assert "FinishedWorkload" in kubectl("get", "events", "--field-selector", f"involvedObject.name={job}")


@pytest.mark.row("S3.8")
def test_a_sweep_is_an_indexed_job_in_the_queue(kubectl: Kubectl) -> None:
    text = manifest("lightweight-pod-job.yaml").replace('["sleep", "infinity"]', '["true"]')
    text = text.replace("completions: 1", "completions: 4\n  parallelism: 2\n  completionMode: Indexed")
    job = create(kubectl, text.replace("cpu: 1", "cpu: 100m").replace("1Gi", "16Mi"))
    eventually(lambda: "Finished" in workload(kubectl, job), "the end of all trials", 60)
    assert workload(kubectl, job)["Finished"]["reason"] == "Succeeded"
    kubectl("delete", "job", job)


TEAM = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: team-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: team-flavor, resources: [{name: cpu, nominalQuota: 200m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team-queue}
spec: {clusterQueue: team}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  labels: {kueue.x-k8s.io/queue-name: team-queue, USERS}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: busybox, command: [sleep, "SECONDS"], resources: {requests: {cpu: 150m}}}
"""


def job_of(name: str, labels: str, seconds: str = "infinity") -> str:
    return JOB.replace("NAME", name).replace("USERS", labels).replace("SECONDS", seconds)


def is_running(kubectl: Kubectl, job: str) -> bool:
    return any(pod["status"]["phase"] == "Running" for pod in pods_of(kubectl, job))  # type: ignore[index]


def test_three_users_share_a_queue_and_a_preempted_job_resumes_unchanged(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=TEAM)
    for user in ("ann", "bob", "cay"):
        kubectl("create", "-f", "-", stdin=job_of(user, f"eidf/user: {user}"))
        eventually(lambda: bool(workload(kubectl, user)), "its workload")  # noqa: B023
    eventually(lambda: is_running(kubectl, "ann"), "the first user's pod")
    for user in ("bob", "cay"):
        eventually(lambda: "QuotaReserved" in workload(kubectl, user), "the reason")  # noqa: B023
        assert workload(kubectl, user)["QuotaReserved"]["message"] == (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor team-flavor,"
            " 100m more needed"
        )
        assert pods_of(kubectl, user) == []
    counts = ["team-queue", "team", "2", "1"]
    eventually(lambda: kubectl("get", "lq", "team-queue").splitlines()[1].split() == counts, "the figures")
    before = json.loads(kubectl("get", "job", "ann", "-o", "json"))["metadata"]["generation"]
    urgent = job_of("urgent", "kueue.x-k8s.io/priority-class: urgent", "2")
    kubectl("create", "-f", "-", stdin=urgent)
    eventually(lambda: workload(kubectl, "ann").get("Preempted", {}).get("status") == "True", "the preemption")
    preempted = workload(kubectl, "ann")["Preempted"]
    assert preempted["reason"] == "InClusterQueue"
    assert (
        "due to prioritization in the ClusterQueue; preemptor path: /team; preemptee path: /team"
        in preempted["message"]
    )
    eventually(lambda: "Finished" in workload(kubectl, "urgent"), "the urgent job's end", 60)
    eventually(lambda: is_running(kubectl, "ann"), "the first user's pod again", 60)
    after = json.loads(kubectl("get", "job", "ann", "-o", "json"))
    assert after["metadata"]["generation"] > before
    labels = after["spec"]["template"]["metadata"]["labels"]
    assert {key for key in labels if "kueue" in key} == {
        "kueue.x-k8s.io/podset",
        "kueue.x-k8s.io/local-queue-name",
        "kueue.x-k8s.io/cluster-queue-name",
    }
    described = kubectl("describe", "job", "ann")
    assert described.count("Admitted by clusterQueue team")
    assert "  Stopped " in described
    assert not is_running(kubectl, "bob")
    kubectl("delete", "job", "ann", "bob", "cay", "urgent")
    kubectl("delete", "cq/team", "lq/team-queue", "wpc/urgent", "rf/team-flavor")


def test_the_creation_of_the_local_queues_gets_an_event(kubectl: Kubectl) -> None:
    eventually(lambda: "LocalQueueCreated" in kubectl("get", "events"), "the event")
    assert "yard up --no-local-queues" in kubectl("get", "events", "-o", "yaml")
