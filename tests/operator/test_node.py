"""The operator in containers of a real node, from its manifests: the documents' jobs, rejections, hand-over, kills.

Needs a machine with root, containerd and the script that starts such a node, and some minutes: full effort only.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support import kubectl as kubectls
from tests.support.images import install_busybox, install_file, install_python, pack
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT
from tests.support.real_node import load_image, real_node
from tests.support.training import interpreter
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import IMAGE as RUNTIME_IMAGE
from torchyard.operator.settings import LEASE, NAME, NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000)]
EXAMPLES = ROOT / "examples"
IMAGE = "docker.io/torchyard/operator:test"
SPACE = "documents"
RUNTIME = (
    "aiohttp",
    "cryptography",
    "google-re2",
    "orjson",
    "prometheus-client",
    "psutil",
    "pyyaml",
    "rich",
    "typer",
    "uvloop",
)
_MODELS = "projects.registry.vmware.com/models/kubeflow-docs"
# The documents' images: their programs are at these paths, and are what the images run.
TRAINING = {
    "docker.io/kubeflow/pytorch-dist-mnist-test:1.0": "/var/mnist.py",
    f"{_MODELS}/model-training-pytorch:1.11.0-cpu-py3.8-v0.1": "/opt/pytorch/train.py",
    "docker.io/joleedocker/traindb-training-mnist:1.0": "/opt/mnist/src/mnist_training.py",
}
LIMIT = os.environ.get("TORCHYARD_NODE_IMAGES", "6400")  # of MNIST's 60,000; 0 for all
PATIENCE = 1200.0
KILLS, KILL_JOBS = 50, 12


@dataclass(frozen=True)
class Node:
    directory: Path
    kubectl: Kubectl

    def apply(self, *objects: Object) -> None:
        """Retry until it is accepted: a replica that was just killed still receives reviews for a moment."""
        text = yaml.safe_dump_all(objects)

        def taken() -> bool:
            done = self.kubectl.run("apply", "--server-side", "-f", "-", stdin=text)
            assert done.returncode == 0 or "failed to call webhook" in done.stderr, done.stderr
            return done.returncode == 0

        eventually(taken, "the objects are taken", 120)

    def get(self, *words: str) -> Object:
        read: Object = json.loads(self.kubectl("get", *words, "-o", "json"))
        return read

    def leader(self) -> str:
        """The pod that holds the lease."""
        lease = self.get("lease", LEASE, "-n", NAMESPACE)
        return str(lease["spec"].get("holderIdentity") or "").split("_")[0]

    def kill(self, pod: str) -> None:
        """Kill the operator's process in a pod, as a machine failure would."""
        pod_object = self.get("pod", pod, "-n", NAMESPACE)
        (container,) = pod_object["status"]["containerStatuses"]
        socket = self.directory / "containerd" / "containerd.sock"
        task = container["containerID"].removeprefix("containerd://")
        ctr = ["ctr", "-a", str(socket), "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", task]
        subprocess.run(ctr, check=True, capture_output=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with real_node(tmp_path_factory.mktemp("node")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def node(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("documents")
    newest = kubectls.newest()
    assert newest is not None
    admin = newest.using(cluster, directory)
    node = Node(cluster.parent, newest.using(cluster, directory, SPACE))
    load_images(node, directory)
    admin("create", "namespace", SPACE)
    yard("install", "--image", IMAGE, "--kubeconfig", str(cluster))
    ready(node)
    yield node
    yard("uninstall", "--with-jobs", "--kubeconfig", str(cluster))
    admin("delete", "namespace", SPACE, "--wait=false")
    admin("delete", "persistentvolume", "--all", "--wait=false")


def load_images(node: Node, directory: Path) -> None:
    """TORCHYARD_NODE_ARCHIVES names a directory that caches them."""
    cache = Path(os.environ.get("TORCHYARD_NODE_ARCHIVES") or directory / "archives")
    cache.mkdir(parents=True, exist_ok=True)
    for name, make in (("operator", make_operator), ("alpine", make_alpine), ("training", make_training)):
        archive = cache / f"{name}.tar"
        # The operator's code is under test; the other images change only with the machine.
        if name == "operator" or not archive.exists():
            make(directory / name, archive)
            shutil.rmtree(directory / name)
        load_image(node.directory / "kubeconfig", archive)


def make_operator(tree: Path, archive: Path) -> None:
    python = install_python(tree, sys.executable, RUNTIME)
    shutil.copytree(ROOT / "src", tree / "app", ignore=shutil.ignore_patterns("__pycache__"))
    packages = {"PYTHONPATH": "/app:/site-packages", "PYTHONDONTWRITEBYTECODE": "1"}
    pack(tree, {IMAGE: [*python, "-m", "torchyard.cli"]}, archive, env=packages)


def make_alpine(tree: Path, archive: Path) -> None:
    install_busybox(tree)
    pack(tree, {"docker.io/library/alpine:3.10": ["/bin/sh"]}, archive, env={})


def make_training(tree: Path, archive: Path) -> None:
    python = install_python(tree, interpreter(), ("torch", "numpy"))
    for program in TRAINING.values():
        shutil.copytree(EXAMPLES / "mnist", tree / program.lstrip("/").rpartition("/")[0], dirs_exist_ok=True)
    install_torchrun(tree, python[0])
    variables = {"PYTHONPATH": "/site-packages", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    commands = {name: [*python, program] for name, program in TRAINING.items()}
    pack(tree, {**commands, f"docker.io/{RUNTIME_IMAGE}": python}, archive, env=variables)


def install_torchrun(tree: Path, python: str) -> None:
    """What the SDK's command starts: bash and torchrun."""
    install_file(tree, Path("/usr/bin/bash"))
    (tree / "bin").mkdir(exist_ok=True)
    (tree / "bin" / "bash").symlink_to("/usr/bin/bash")
    torchrun = tree / "usr" / "bin" / "torchrun"
    torchrun.write_text(f"#!{python}\nfrom torch.distributed.run import main\n\nmain()\n")
    torchrun.chmod(0o755)


def yard(*arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def ready(node: Node) -> None:
    node.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{NAME}", "--timeout=300s", timeout=320)


def document(path: str, *flags: str) -> Object:
    """A manifest of the documents. The images are loaded into this node, which has no access to a registry."""
    read: Object = yaml.safe_load((EXAMPLES / path).read_text())
    for replica in read["spec"]["pytorchReplicaSpecs"].values():
        container = replica["template"]["spec"]["containers"][0]
        container["imagePullPolicy"] = "IfNotPresent"
        where = "command" if "command" in container else "args"
        container[where] = [*container.get(where, []), *flags]
    return read


def trained(node: Node, job: Object) -> str:
    """Create the job and wait for its end; returns the master's log."""
    name = job["metadata"]["name"]
    begun = time.monotonic()
    node.apply(job)

    def state() -> str:
        return node.kubectl("get", "pytorchjob", name, "--no-headers").split()[1]

    eventually(lambda: state() in ("Succeeded", "Failed"), f"the end of {name}", PATIENCE)
    log = node.kubectl("logs", f"{name}-master-0")
    assert state() == "Succeeded", log[-2000:] + node.kubectl("describe", "pytorchjob", name)
    print(f"{name}: Succeeded after {time.monotonic() - begun:.0f} s; {log.splitlines()[-1]}")
    return log


def test_an_invalid_job_is_rejected_by_real_admission(node: Node) -> None:
    bad = document("mnist-ddp/pytorch_job_mnist_gloo_demo.yaml")
    bad["spec"]["pytorchReplicaSpecs"]["Boss"] = bad["spec"]["pytorchReplicaSpecs"]["Master"]
    error = node.kubectl.fails("create", "-f", "-", stdin=yaml.safe_dump(bad))
    assert "spec.pytorchReplicaSpecs[Boss]" in error and "Unsupported value" in error
    print(error.strip())


def test_document_000_trains_in_containers(node: Node) -> None:
    log = trained(node, document("mnist-ddp/pytorch_job_mnist_gloo_demo.yaml", f"--limit={LIMIT}"))
    assert log.startswith("Using distributed PyTorch with gloo backend\n") and "accuracy=" in log


def test_document_001_trains_and_stores_its_model(node: Node, tmp_path: Path) -> None:
    claim = yaml.safe_load((EXAMPLES / "pvc-checkpoints" / "data-claim.yaml").read_text())
    spec = {
        "storageClassName": claim["spec"]["storageClassName"],
        "capacity": {"storage": "10Gi"},
        "accessModes": claim["spec"]["accessModes"],
        "hostPath": {"path": str(tmp_path)},
    }
    node.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data"}, "spec": spec}, claim)
    trained(node, document("pvc-checkpoints/pytorchjob-cpu.yaml"))
    assert (tmp_path / "mnist_cnn.pt").stat().st_size > 1_000_000


def test_document_002_trains_and_stores_its_model_in_the_host_path(node: Node, tmp_path: Path) -> None:
    volume = yaml.safe_load((EXAMPLES / "custom-image" / "traindb-models-volume.yaml").read_text())
    volume["spec"]["hostPath"]["path"] = str(tmp_path)
    node.apply(volume, yaml.safe_load((EXAMPLES / "custom-image" / "traindb-models-claim.yaml").read_text()))
    # The document trains on Fashion-MNIST, which would have to be downloaded.
    trained(node, document("custom-image/traindb-training-mnist.yaml", "--dataset=mnist", f"--limit={LIMIT}"))
    assert list(tmp_path.glob("*.pt"))


def small(name: str, seconds: int) -> Object:
    container = {"name": "pytorch", "image": "alpine:3.10", "command": ["sleep", str(seconds)]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    replicas = {kind: {"replicas": 1, "template": template} for kind in ("Master", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def test_another_replica_takes_over_soon_after_the_leader_is_killed(node: Node) -> None:
    ready(node)
    took = []
    for number in range(3):
        eventually(lambda: bool(node.leader()), "a leader", 60)
        ready(node)
        begun = time.monotonic()
        node.kill(node.leader())
        killed = time.monotonic()
        node.apply(small(f"after-{number}", 1))

        def pod_exists(name: str = f"after-{number}-master-0") -> bool:
            return node.kubectl.run("get", "pod", name).returncode == 0

        eventually(pod_exists, "the next leader's first pod", 60)
        took.append(time.monotonic() - killed)
        print(f"killed in {killed - begun:.1f} s; the next one's first pod after {took[-1]:.1f} s")
    assert min(took) < 60


def test_an_operator_killed_repeatedly_loses_no_job_and_creates_nothing_twice(node: Node) -> None:
    random.seed(11)
    ready(node)
    names = [f"kill-{number}" for number in range(KILL_JOBS)]
    pod_uids: dict[str, set[str]] = {}

    def look() -> None:
        for pod in node.get("pods")["items"]:
            if pod["metadata"]["name"].startswith("kill-"):
                pod_uids.setdefault(pod["metadata"]["name"], set()).add(pod["metadata"]["uid"])

    killed = Counter[str]()
    for number in range(KILLS):
        if number % (KILLS // KILL_JOBS) == 0 and names:
            node.apply(small(names.pop(), 3))
        pods = [pod["metadata"]["name"] for pod in node.get("pods", "-n", NAMESPACE)["items"]]
        if pods:
            victim = random.choice(pods)
            done = node.kubectl.run("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
            killed["deleted" if done.returncode == 0 else "gone before"] += 1
        look()
        time.sleep(random.random() * 2)
    for name in names:
        node.apply(small(name, 3))

    def ended() -> bool:
        look()
        lines = [line.split() for line in node.kubectl("get", "pytorchjobs", "--no-headers").splitlines()]
        return sum(line[0].startswith("kill-") and line[1] == "Succeeded" for line in lines) == KILL_JOBS

    eventually(ended, "the end of every job", 600)
    print(f"{sum(killed.values())} kills, {len(pod_uids)} pods of {KILL_JOBS} jobs")
    assert not {name: uids for name, uids in pod_uids.items() if len(uids) > 1}
    assert len(pod_uids) == KILL_JOBS * 2
