"""The documents' PyTorchJob manifests with a real kubectl; the test sets the status of pods, as a node would."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.test_manifests import PRINTED
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.pytorchjob.names import REPLICA_INDEX

pytestmark = pytest.mark.clients

EXAMPLES = ROOT / "examples"
_numbers = itertools.count()
GLOO = "pytorch-dist-mnist-gloo-demo"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("documents"), controllers="*") as server:
        yield server


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    """The newest kubectl of this machine, in a namespace of its own."""
    kubectl = kubectls.need()
    namespace = f"documents-{next(_numbers)}"
    kubectl.using(plane.kubeconfig, tmp_path)("create", "namespace", namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(lambda: plane.admin.get(path).status == 200, "the service account")
    return kubectl.using(plane.kubeconfig, tmp_path, namespace)


def pods(shell: Kubectl, *selector: str) -> list[str]:
    names = shell("get", "pods", *selector, "-o", "name").split()
    return sorted(name.removeprefix("pod/") for name in names)


def move(plane: Server, shell: Kubectl, pod: str, phase: str) -> None:
    answer = plane.admin.patch(f"/api/v1/namespaces/{shell.namespace}/pods/{pod}/status", {"status": {"phase": phase}})
    assert answer.status == 200, answer


@pytest.mark.row("S0.1")
def test_the_custom_resource_definition_is_listed(shell: Kubectl) -> None:
    (line,) = [row for row in shell("get", "crd").splitlines() if "pytorch" in row]
    assert line.startswith("pytorchjobs.kubeflow.org ")


@pytest.mark.row("S1.1")
def test_the_training_operators_pod_runs_and_has_a_log(shell: Kubectl) -> None:
    def is_running() -> bool:
        lines = shell.run("get", "pods", "--namespace", "kubeflow").stdout.splitlines()
        return any(line.split()[:3] == ["training-operator-0", "1/1", "Running"] for line in lines)

    eventually(is_running, "the training operator")
    shell("create", "-f", str(EXAMPLES / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"))
    command = ("logs", "--namespace", "kubeflow", "training-operator-0")

    def is_logged() -> bool:
        lines = [line for line in shell(*command).splitlines() if f"job={shell.namespace}/{GLOO} " in line]
        return any(f"SuccessfulCreatePod: Created pod: {GLOO}-master-0" in line for line in lines)

    eventually(is_logged, "the operator's log")
    assert shell(*command, "--tail=1").count("\n") == 1
    assert "is not available here" in shell.fails(*command, "--previous")
    with shell.start(*command, "--follow", "--since=1s") as follower:
        shell("delete", "pytorchjob", GLOO)
        shell("create", "-f", str(EXAMPLES / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"))
        assert follower.stdout is not None
        assert any(GLOO in line for line in follower.stdout)
        follower.kill()


@pytest.mark.row("S0.3", "S0.4", "S0.5", "S0.6")
def test_the_gloo_demo_is_created_listed_and_described(shell: Kubectl, plane: Server) -> None:
    output = shell("create", "-f", str(EXAMPLES / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"))
    assert output == f"pytorchjob.kubeflow.org/{GLOO} created\n"
    replicas = [f"{GLOO}-master-0", *(f"{GLOO}-worker-{index}" for index in range(3))]
    eventually(lambda: pods(shell) == replicas, "the pods")
    for name in replicas:
        move(plane, shell, name, "Running")
    eventually(lambda: "Running" in shell("get", "pytorchjob"), "the state Running")
    for name in replicas:
        move(plane, shell, name, "Succeeded")
    eventually(lambda: "Succeeded" in shell("get", "pytorchjob"), "the state Succeeded")
    header, line = shell("get", "pytorchjob").splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "PROGRESS"]  # the document's columns, and one of ours
    assert line.split()[:2] == [GLOO, "Succeeded"]
    eventually(lambda: "PyTorchJobSucceeded" in shell("get", "events"), "the last event")
    described = shell("describe", "pytorchjob", GLOO)
    order = [described.index(f"PyTorchJob{word}") for word in ("Created", "Running", "Succeeded")]
    assert order == sorted(order)
    for part in (
        f"PyTorchJob {GLOO} is successfully completed.",
        "Completion Time:",
        "Start Time:",
        f"Created pod: {GLOO}-worker-2",
        f"Created service: {GLOO}-worker-2",
    ):
        assert part in described
    # The events may be of the same second; their order must still be right.
    events = described[described.index("Events:") :]
    assert events.index(f"Created pod: {GLOO}-master-0") < events.index(f"Created pod: {GLOO}-worker-2")
    assert events.index(f"Created service: {GLOO}-worker-2") < events.index("PyTorchJobSucceeded")


@pytest.mark.row("S0.3")
def test_the_manifest_as_printed_is_rejected(shell: Kubectl) -> None:
    error = shell.fails("create", "-f", "-", stdin=PRINTED)
    assert "error converting YAML to JSON" in error


@pytest.mark.row("S1.3", "S1.5")
def test_the_old_and_the_new_labels_select_the_pods(shell: Kubectl) -> None:
    shell("apply", "-f", str(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml"))
    shell("create", "-f", str(EXAMPLES / "pvc-checkpoints" / "pytorchjob-cpu.yaml"))
    job = "pytorchjob-distributed-training"
    replicas = [f"{job}-master-0", f"{job}-worker-0", f"{job}-worker-1"]
    eventually(lambda: pods(shell, "-l", f"job-name={job}") == replicas, "the pods")
    for label in ("training.kubeflow.org/job-name", "pytorch-job-name"):
        assert pods(shell, "-l", f"{label}={job}") == replicas
    for name in replicas:
        pod: dict[str, Any] = json.loads(shell("get", "pod", name, "-o", "json"))
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    scaled = shell("scale", "pytorchjob", job, "--replicas=3")
    assert scaled == f"pytorchjob.kubeflow.org/{job} scaled\n"
    eventually(lambda: len(pods(shell)) == 4, "the third worker")


@pytest.mark.row("S2.6", "S2.7")
def test_labels_select_the_master_and_deleted_pods_of_a_finished_job_stay_deleted(
    shell: Kubectl, plane: Server
) -> None:
    shell("apply", "-f", str(EXAMPLES / "custom-image" / "traindb-models-claim.yaml"))
    shell("create", "-f", str(EXAMPLES / "custom-image" / "traindb-training-mnist.yaml"))
    job = "traindb-training-mnist"
    master = f"job-name={job},replica-type=master,replica-index=0"
    eventually(lambda: pods(shell, "-l", master) == [f"{job}-master-0"], "the master")
    eventually(lambda: pods(shell, "-l", f"job-name={job},{REPLICA_INDEX}=0,replica-type=worker") != [], "the worker")
    move(plane, shell, f"{job}-master-0", "Succeeded")
    move(plane, shell, f"{job}-worker-0", "Succeeded")
    eventually(lambda: "Succeeded" in shell("get", "pytorchjob", job), "success")
    shell("delete", "pods", "-l", f"job-name={job}")
    listed = shell.run("get", "pods", "-l", f"job-name={job}")
    assert listed.stderr == f"No resources found in {shell.namespace} namespace.\n"


@pytest.mark.row("S2.8")
def test_the_conditions_while_the_job_runs_and_after_it(shell: Kubectl, plane: Server) -> None:
    job = "traindb-training-mnist"
    shell("create", "-f", str(EXAMPLES / "custom-image" / "traindb-training-mnist.yaml"))
    replicas = [f"{job}-master-0", f"{job}-worker-0"]
    eventually(lambda: pods(shell) == replicas, "the pods")

    def status() -> dict[str, Any]:
        read: dict[str, Any] = yaml.safe_load(shell("get", "-o", "yaml", "pytorchjobs", job))
        return dict(read.get("status") or {})

    def conditions() -> list[tuple[str, str, str, str]]:
        return [
            (condition["type"], condition["status"], condition["reason"], condition["message"])
            for condition in status().get("conditions") or ()
        ]

    created = ("Created", "True", "PyTorchJobCreated", f"PyTorchJob {job} is created.")
    running = ("Running", "True", "PyTorchJobRunning", f"PyTorchJob {job} is running.")
    for name in replicas:
        move(plane, shell, name, "Running")
    eventually(lambda: conditions() == [created, running], "the running block")
    eventually(
        lambda: (
            {kind: replicas_status.get("active") for kind, replicas_status in status()["replicaStatuses"].items()}
            == {"Master": 1, "Worker": 1}
        ),
        "active replicas",
    )
    assert "completionTime" not in status()
    for name in replicas:
        move(plane, shell, name, "Succeeded")
    succeeded = ("Succeeded", "True", "PyTorchJobSucceeded", f"PyTorchJob {job} is successfully completed.")
    eventually(lambda: conditions() == [created, ("Running", "False", *running[2:]), succeeded], "the last block")
    eventually(
        lambda: (
            {kind: replicas_status.get("succeeded") for kind, replicas_status in status()["replicaStatuses"].items()}
            == {"Master": 1, "Worker": 1}
        ),
        "succeeded replicas",
    )
    assert status()["completionTime"]
