"""The documents' jobs that ask for a GPU, on a machine that has one and says it is of the make they select."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.training import interpreter
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object
from torchyard.node.devices import nvidia

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]

EXAMPLES = ROOT / "examples"
PRODUCT = "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
PATIENCE = 300.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not nvidia.find():
        pytest.skip("no NVIDIA GPU here")
    need_network()
    flags = ("--node", "--python", interpreter(), "--assume-gpu-product", PRODUCT)
    control_plane = Yard(tmp_path_factory.mktemp("gpu"), controllers="*", flags=flags)
    try:
        yield control_plane.start()
    finally:
        control_plane.stop()
        yard("down", state=control_plane.state, timeout=120)


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    kubectl = kubectls.need()
    return kubectl.using(plane.kubeconfig, tmp_path, "default")


def ended(shell: Kubectl, resource: str, word: str) -> None:
    eventually(lambda: word in shell("get", resource, "--no-headers"), f"{resource} {word}", PATIENCE)


@pytest.mark.row("S0.9")
def test_the_demo_trains_on_a_gpu(shell: Kubectl) -> None:
    """The demo with the comment before its limit taken away; one GPU is enough for its master alone."""
    job: Object = yaml.safe_load(
        (EXAMPLES / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml").read_text().replace("#", "")
    )
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    shell("create", "-f", "-", stdin=yaml.safe_dump(job))
    name = job["metadata"]["name"]
    ended(shell, f"pytorchjob/{name}", "Succeeded")
    log = shell("logs", f"{name}-master-0")
    print(log[:200], log[-200:])
    assert log.startswith("Using CUDA\n")
    assert float(log.split("accuracy=")[-1].split()[0]) >= 0.96
    shell("delete", "pytorchjob", name)


@pytest.mark.row("S0.9")
def test_no_cuda_does_not_use_the_gpu(shell: Kubectl) -> None:
    job: Object = yaml.safe_load((EXAMPLES / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml").read_text())
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["args"] += ["--no-cuda", "--limit", "640"]
    job["metadata"]["name"] = "no-cuda"
    shell("create", "-f", "-", stdin=yaml.safe_dump(job))
    ended(shell, "pytorchjob/no-cuda", "Succeeded")
    assert "Using CUDA" not in shell("logs", "no-cuda-master-0")


@pytest.mark.row("S1.4")
def test_of_two_replicas_one_gets_the_gpu_and_the_other_waits_with_the_reason(shell: Kubectl) -> None:
    node = json.loads(shell("get", "nodes", "-o", "json"))["items"][0]
    if int(node["status"]["allocatable"]["nvidia.com/gpu"]) > 1:
        pytest.skip("this machine has a GPU for each replica")
    shell("apply", "-f", str(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml"))
    shell("create", "-f", str(EXAMPLES / "pvc-checkpoints" / "pytorchjob-gpu.yaml"))
    job = "pytorchjob-distributed-training-gpu"
    names = (f"{job}-master-0", f"{job}-worker-0")
    reason = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    eventually(
        lambda: any(reason in shell.run("describe", "pod", name).stdout for name in names), "the reason", PATIENCE
    )
    phases = sorted(shell("get", "pod", name, "-o", "jsonpath={.status.phase}") for name in names)
    assert phases == ["Pending", "Running"]
    shell("delete", "pytorchjob", job)
    eventually(lambda: not shell("get", "pods", "-l", f"job-name={job}", "-o", "name"), "the pods gone", PATIENCE)


@pytest.mark.row("S3.5")
def test_a_training_runs_on_the_selected_gpu_product(shell: Kubectl) -> None:
    shell("create", "-f", str(EXAMPLES / "queued-jobs" / "pytorch-pvc.yaml"))
    eventually(lambda: shell("get", "pvc", "pytorch-pvc", "-o", "jsonpath={.status.phase}") == "Bound", "the claim")
    name = shell("get", "pvc", "pytorch-pvc", "-o", "jsonpath={.spec.volumeName}")
    volume = Path(json.loads(shell("get", "pv", name, "-o", "json"))["spec"]["local"]["path"])
    (volume / "data").mkdir()
    for file in (EXAMPLES / "mnist" / "data" / "mnist").iterdir():
        (volume / "data" / file.name).write_bytes(file.read_bytes())
    (volume / "example_pytorch_code.py").write_bytes(
        (EXAMPLES / "queued-jobs" / "example_pytorch_code.py").read_bytes()
    )
    queue = "kueue.x-k8s.io/queue-name: <project namespace>-user-queue"
    text = (EXAMPLES / "queued-jobs" / "pytorch-job.yaml").read_text().replace(queue, "document: '003'")
    job = shell("create", "-f", "-", "-o", "name", stdin=text).strip()
    ended(shell, job, "Complete")
    log = shell("logs", job)
    print(log)
    assert log.startswith("Using cuda device\n")
    assert log.endswith("Saved PyTorch Model State to model.pth\n")
    assert (volume / "model.pth").exists()
