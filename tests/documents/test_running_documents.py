"""The documents' commands that need pods to run: a plane with its node, and a real kubectl."""

from __future__ import annotations

import gzip
import itertools
import json
import runpy
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.effort import FULL
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object

pytestmark = pytest.mark.clients

EXAMPLES = ROOT / "examples"
TIMEOUT = 120
_numbers = itertools.count()
JOB = "pytorchjob-distributed-training"


@pytest.fixture(scope="module")
def running_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("running"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


@pytest.fixture
def plane(running_plane: Yard) -> Server:
    return running_plane.server()


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    """The newest kubectl of this machine, in a namespace of its own."""
    kubectl = kubectls.need()
    namespace = f"running-{next(_numbers)}"
    kubectl.using(plane.kubeconfig, tmp_path)("create", "namespace", namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(lambda: plane.admin.get(path).status == 200, "the service account")
    return kubectl.using(plane.kubeconfig, tmp_path, namespace)


def job_with(program: str, **resources: Any) -> str:
    """The CPU job of examples/pvc-checkpoints, its image's program replaced by a short one."""
    container = {"name": "pytorch", "image": "busybox", "command": ["sh", "-c", program], "resources": resources}
    template = {"spec": {"containers": [container]}}
    replicas = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template},
        "Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template},
    }
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": JOB},
            "spec": {"pytorchReplicaSpecs": replicas},
        }
    )


@pytest.mark.row("S0.4")
def test_workers_wait_in_an_init_container_until_the_masters_name_resolves(shell: Kubectl) -> None:
    shell("create", "-f", "-", stdin=job_with("echo ready; sleep 600"))

    def rows() -> dict[str, list[str]]:
        lines = shell("get", "pods", "--no-headers").splitlines()
        return {line.split()[0]: line.split()[1:] for line in lines}

    names = [f"{JOB}-master-0", f"{JOB}-worker-0", f"{JOB}-worker-1"]
    eventually(lambda: sorted(rows()) == names, "the pods")
    eventually(lambda: all(row[:2] == ["1/1", "Running"] for row in rows().values()), "all of them running", TIMEOUT)
    assert {row[2] for row in rows().values()} == {"0"}, "no restarts"
    init = json.loads(shell("get", "pod", names[1], "-o", "json"))["status"]["initContainerStatuses"]
    assert [status["state"]["terminated"]["reason"] for status in init] == ["Completed"]
    shell("delete", "pytorchjob", JOB)
    eventually(lambda: rows() == {}, "the pods gone", TIMEOUT)


@pytest.mark.row("S0.8")
def test_kubectl_top_shows_pods_and_nodes(shell: Kubectl) -> None:
    shell("create", "-f", "-", stdin=job_with("sleep 600"))
    eventually(lambda: shell.run("top", "pods").stdout.count(JOB) == 3, "usage of the pods", TIMEOUT)
    header, *lines = shell("top", "pods").splitlines()
    assert header.split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert all(line.split()[1].endswith("m") and line.split()[2].endswith("Mi") for line in lines)
    header, line = shell("top", "nodes").splitlines()
    assert header.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert line.split()[2].endswith("%")
    shell("delete", "pytorchjob", JOB)


@pytest.mark.row("S0.9", "S1.4")
def test_without_a_gpu_the_pods_stay_pending_with_the_reason(shell: Kubectl) -> None:
    eventually(lambda: shell("get", "nodes", "-o", "name") != "", "the node to register")
    node = json.loads(shell("get", "nodes", "-o", "json"))["items"][0]
    if int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)):
        pytest.skip("this machine has GPUs: tests/node covers their allocation")
    shell("create", "-f", str(EXAMPLES / "pvc-checkpoints" / "pytorchjob-gpu.yaml"))
    master = f"{JOB}-gpu-master-0"
    shell("create", "-f", "-", stdin=job_with("true", limits={"nvidia.com/gpu": 1}))
    reason = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    eventually(lambda: reason in shell.run("describe", "pod", f"{JOB}-master-0").stdout, "the reason", TIMEOUT)
    assert f"{JOB}-master-0" in shell("get", "pods", "--field-selector", "status.phase=Pending")
    eventually(lambda: "Pending" in shell.run("get", "pod", master).stdout, "the document's own job pending")


def has_started(shell: Kubectl, pod: str) -> bool:
    return shell.run("get", "pod", pod, "-o", "jsonpath={.status.phase}").stdout in ("Running", "Succeeded")


@pytest.mark.row("S1.6")
def test_kubectl_logs_follow_until_the_pod_ends(shell: Kubectl) -> None:
    shell("create", "-f", "-", stdin=job_with("for i in 1 2 3; do echo step $i of $RANK; sleep 0.3; done"))
    for rank, pod in enumerate([f"{JOB}-master-0", f"{JOB}-worker-0", f"{JOB}-worker-1"]):
        eventually(partial(has_started, shell, pod), f"{pod} running", TIMEOUT)
        assert shell("logs", "-f", pod) == "".join(f"step {step} of {rank}\n" for step in (1, 2, 3))


@pytest.mark.row("S1.8")
def test_the_elastic_policy_adds_workers_under_load(shell: Kubectl) -> None:
    job = json.loads(job_with("timeout 120 sh -c 'while :; do :; done'; sleep 600", requests={"cpu": "20m"}))
    worker = job["spec"]["pytorchReplicaSpecs"].pop("Worker")
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"] = {**worker, "replicas": 1}
    target = {"type": "Utilization", "averageUtilization": 50}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 2, "metrics": metrics}
    shell("create", "-f", "-", stdin=json.dumps(job))
    count = ("get", "pytorchjob", JOB, "-o", "jsonpath={.spec.pytorchReplicaSpecs.Worker.replicas}")
    eventually(lambda: shell(*count) == "2", "a second worker", TIMEOUT)
    eventually(lambda: "SuccessfulRescale" in shell("describe", "hpa", JOB), "the event", TIMEOUT)
    described = shell("describe", "hpa", JOB)
    assert "New size: 2; reason: cpu resource utilization (percentage of request) above target" in described
    eventually(lambda: f"{JOB}-worker-1" in shell("get", "pods"), "its pod", TIMEOUT)
    header, line = shell("get", "hpa").splitlines()
    assert header.split() == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert line.split()[1] == f"PyTorchJob/{JOB}"
    shell("delete", "pytorchjob", JOB, "--wait=false")


@pytest.mark.row("S1.8")
def test_every_volume_type_is_mounted(shell: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "f").write_text("host path\n")
    shell("apply", "-f", str(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml"))
    shell("create", "configmap", "settings", "--from-literal=f=config map")
    shell("create", "secret", "generic", "keys", "--from-literal=f=secret")
    items = [{"key": "f", "path": "f"}]
    sources = [{"configMap": {"name": "settings", "items": items}}, {"secret": {"name": "keys", "items": [
        {"key": "f", "path": "g"}]}}, {"downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]  # fmt: skip
    volumes: dict[str, Object] = {
        "host": {"hostPath": {"path": str(tmp_path / "host"), "type": "Directory"}},
        "empty": {"emptyDir": {}},
        "claim": {"persistentVolumeClaim": {"claimName": "data"}},
        "config": {"configMap": {"name": "settings"}},
        "secret": {"secret": {"secretName": "keys"}},
        "projected": {"projected": {"sources": sources}},
    }
    script = (
        "echo empty > /v/empty/f; echo claim > /v/claim/f; cd /v; for i in host empty claim config secret projected; "
        'do echo "$i: $(cat $i/f)"; done; echo "$(cat projected/g) $(cat projected/name)"'
    )
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": name, "mountPath": f"/v/{name}"} for name in volumes],
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": name, **volume} for name, volume in volumes.items()],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volumes"}, "spec": spec}
    shell("create", "-f", "-", stdin=json.dumps(pod))
    phase = ("get", "pod", "volumes", "-o", "jsonpath={.status.phase}")
    eventually(lambda: shell(*phase) in ("Succeeded", "Failed"), "the pod's end", TIMEOUT)
    assert shell("logs", "volumes").splitlines() == [
        "host: host path",
        "empty: empty",
        "claim: claim",
        "config: config map",
        "secret: secret",
        "projected: config map",
        "secret volumes",
    ]


@pytest.mark.parametrize(
    ("dockerfile", "name", "program"),
    [
        ("mnist-ddp/Dockerfile", "rollingstones/pytorch-dist-mnist-test:1.0", "/var/mnist.py"),
        ("custom-image/Dockerfile_training", "traindb-training-mnist", "/opt/mnist/src/mnist_training.py"),
    ],
)
@pytest.mark.row("S0.2", "S2.3")
def test_the_dockerfiles_are_built_without_a_container_engine(
    running_plane: Yard, tmp_path: Path, dockerfile: str, name: str, program: str
) -> None:
    """Without TORCHYARD_TESTS=full, the lines that need pip are left out."""
    lines = (EXAMPLES / dockerfile).read_text().splitlines()
    (tmp_path / "Dockerfile").write_text("\n".join(line for line in lines if FULL or "pip install" not in line))
    command = ["image", "build", "-f", str(tmp_path / "Dockerfile"), "-t", name, str(EXAMPLES / "mnist")]
    done = yard(*command, state=running_plane.state, timeout=300)
    if done.returncode and "No matching distribution" in done.stdout + done.stderr:
        pytest.skip("pip reaches no index from here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Successfully tagged {name}" in done.stdout
    config = json.loads(yard("image", "inspect", name, state=running_plane.state).stdout)["config"]
    assert config["Entrypoint"][1] == program
    assert yard("image", "tag", name, "joleedocker/again:1.0", state=running_plane.state).returncode == 0
    assert "docker.io/joleedocker/again:1.0" in yard("image", "ls", state=running_plane.state).stdout


@pytest.mark.row("S2.3")
def test_apt_in_a_dockerfile_is_rejected_with_the_reason(running_plane: Yard, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM pytorch/pytorch:1.0-cuda10.0-cudnn7-runtime\n"
        "RUN apt update\n"
        "RUN add-apt-repository ppa:deadsnakes/ppa -y\n"
    )
    done = yard("image", "build", "-t", "with-apt", str(tmp_path), state=running_plane.state, timeout=120)
    assert done.returncode != 0
    assert "RUN apt update" in done.stderr
    assert "container engine" in done.stderr, done.stderr


def test_fashion_mnist_is_made_from_json_by_class(tmp_path: Path) -> None:
    clothes = tmp_path / "fashion-mnist" / "src" / "clothes"
    clothes.mkdir(parents=True)
    for label in range(10):
        (clothes / f"{label}.json").write_text(json.dumps({"data": [[label] * 784] * 7}))
    convert = runpy.run_path(str(EXAMPLES / "mnist" / "fashion.py"))
    convert["main"].__globals__.update(TRAIN=6, TEST=1)
    convert["main"](tmp_path / "fashion-mnist", tmp_path / "out")
    for part, count in (("train", 60), ("t10k", 10)):
        images = gzip.decompress((tmp_path / "out" / f"{part}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((tmp_path / "out" / f"{part}-labels-idx1-ubyte.gz").read_bytes())
        assert struct.unpack(">IIII", images[:16]) == (0x803, count, 28, 28)
        assert struct.unpack(">II", labels[:8]) == (0x801, count)
        assert labels[8:] == images[16::784], "each image is all its label here"
