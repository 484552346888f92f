"""ElasticDL's tutorial program on real MNIST, unmodified: two workers, one killed and replaced, the same model."""

from __future__ import annotations

import importlib.util
import lzma
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.elastic.agent.agent import COMPAT
from torchyard.elastic.chaos import ChaosJob, count_applied_records
from torchyard.elastic.run import RunOptions

pytestmark = pytest.mark.train
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "elastic" / "elasticdl_mnist.py"
STANDIN = Path(__file__).parent / "programs" / "standin"
MNIST = ROOT / "examples" / "mnist" / "data" / "mnist"


def images(kind: str, count: int) -> list[tuple[int, bytes]]:
    pixels = lzma.decompress((MNIST / f"{kind}-images-idx3-ubyte.xz").read_bytes())
    labels = lzma.decompress((MNIST / f"{kind}-labels-idx1-ubyte.xz").read_bytes())[8:]
    assert struct.unpack(">4I", pixels[:16])[0] == 2051
    return [(labels[n], pixels[16 + 784 * n : 16 + 784 * (n + 1)]) for n in range(count)]


@pytest.fixture(scope="module")
def mnist_png(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist_png"))


def write_images(root: Path) -> Path:
    """Write a part of MNIST as in the tutorial: one PNG per image, in a folder per digit."""
    if importlib.util.find_spec("cv2") is None:
        pytest.skip("the tutorial's program needs cv2, which is not installed")
    cv2, numpy = importlib.import_module("cv2"), importlib.import_module("numpy")
    for part, kind, count in (("training", "train", 2400), ("testing", "t10k", 500)):
        for digit in range(10):
            (root / part / str(digit)).mkdir(parents=True)
        for number, (label, pixels) in enumerate(images(kind, count)):
            image = numpy.frombuffer(pixels, numpy.uint8).reshape(28, 28)
            cv2.imwrite(str(root / part / str(label) / f"{number}.png"), image)
    return root


def arguments(data: Path) -> list[str]:
    sizes = ["--num_epochs", "2", "--batch_size", "16"]
    return ["--training_data", f"{data}/training", "--validation_data", f"{data}/testing", *sizes]


def result(output: str) -> tuple[str, float]:
    weights = set(re.findall(r"weights (\w+)", output))
    assert len(weights) == 1, output
    return weights.pop(), float(re.findall(r"accuracy ([\d.]+)", output)[0])


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace torchvision's list of image files if it is not installed; the program is unchanged."""
    paths = [str(ROOT / "src"), *([] if importlib.util.find_spec("torchvision") else [str(STANDIN)])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


SPOILT = """
import torch
from elasticai_api.pytorch.controller import create_elastic_controller
from elasticai_api.pytorch.optimizer import DistributedOptimizer

class Data(torch.utils.data.Dataset):
    def __len__(self): return 60
    def __getitem__(self, index): return controller.data_shard_service.fetch_record_index()

model = torch.nn.Linear(1, 1)
optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
controller = create_elastic_controller(batch_size=5, num_epochs=1, dataset_size=60)
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)

@controller.elastic_run
def train(index):
    if 23 in index: raise ValueError("record 23 is spoilt")
    model(index[:, None].float() / 60).sum().backward()
    optimizer.step()

with controller.scope():
    for index in torch.utils.data.DataLoader(Data(), batch_size=5): train(index)
"""


@pytest.mark.usefixtures("path")
def test_a_record_that_raises_fails_the_job_with_its_traceback_and_number(tmp_path: Path) -> None:
    program = tmp_path / "spoilt.py"
    program.write_text(SPOILT)
    settings = RunOptions((sys.executable, str(program)), tmp_path / "job", workers=2, lease=10.0, quiet=True)
    with ChaosJob(settings) as chaos:
        stop = chaos.wait(120)
    assert stop.cause == "failed", (stop, chaos.output[-20:])
    assert "ValueError: record 23 is spoilt on local-" in stop.message
    assert "Traceback" in stop.message
    assert "23" in stop.message.split("records [")[1].split("]")[0]


SCHEDULED = """
import hashlib, os, sys, time, warnings
import torch
from elasticai_api.pytorch.controller import create_elastic_controller
from elasticai_api.pytorch.optimizer import DistributedOptimizer

warnings.simplefilter("error")

class Data(torch.utils.data.Dataset):
    def __len__(self): return sys.maxsize
    def __getitem__(self, index): return controller.data_shard_service.fetch_record_index()

controller = create_elastic_controller(batch_size=5, num_epochs=12, dataset_size=60, shuffle=True)
model = torch.nn.Linear(1, 1)
optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), fixed_global_batch_size=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)

@controller.elastic_run
def train(index):
    optimizer.zero_grad()
    loss = (model(index[:, None].float() / 60) - 1).square().mean()
    loss.backward()
    optimizer.step()
    return loss

def wait_for(path):
    while not os.path.exists(path): time.sleep(0.05)

epoch, calls = 0, 0
with controller.scope():
    for index in torch.utils.data.DataLoader(Data(), batch_size=5):
        train(index)
        calls += 1
        if controller.get_current_epoch() > epoch:
            epoch = controller.get_current_epoch()
            scheduler.last_epoch = epoch - 1
            scheduler.step()
            if sys.argv[1:] and calls == 1: wait_for(sys.argv[2])
        if sys.argv[1:] and epoch > 5: wait_for(sys.argv[1])
print("weights", hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest(), "accuracy 1.0", flush=True)
"""


@pytest.mark.usefixtures("path")
def test_a_schedule_in_the_loop_of_a_worker_that_joins_late_changes_nothing(tmp_path: Path) -> None:
    """As in the tutorial's model zoo, the loop lowers the learning rate at a new epoch."""
    program, go, alone = tmp_path / "scheduled.py", tmp_path / "go", tmp_path / "alone"
    program.write_text(SCHEDULED)
    environment = {**os.environ, "WORKER_NUM": "2", "PYTHONPATH": f"{COMPAT}:{os.environ['PYTHONPATH']}"}
    command = [sys.executable, str(program)]
    undisturbed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert undisturbed.returncode == 0, undisturbed.stderr
    command += [str(go), str(alone)]
    with ChaosJob(
        RunOptions(tuple(command), tmp_path / "job", workers=2, max_workers=2, lease=60.0, quiet=True)
    ) as chaos:
        chaos.wait_step(36)
        first, second = sorted(chaos.workers())
        chaos.signal_worker(first)
        chaos.wait_until(lambda status: first not in status["workers"] and len(status["workers"]) == 2)
        go.touch()
        # The new worker has applied its first step, and is the only one left when it continues.
        chaos.wait_until(
            lambda status: first not in status["world"] and len(status["world"]) == 2 and status["step"] > 36
        )
        chaos.signal_worker(second)
        chaos.wait_until(lambda status: second not in status["workers"])
        alone.touch()
        stop = chaos.wait(250)
    assert stop.cause == "finished", (stop, "\n".join(chaos.output[-60:]))
    assert result("\n".join(chaos.output)) == result(undisturbed.stdout)


@pytest.mark.usefixtures("path")
def test_the_program_gives_the_same_model_alone_and_with_two_workers_one_of_which_is_killed(
    mnist_png: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "WORKER_NUM": "2", "PYTHONPATH": f"{COMPAT}:{os.environ['PYTHONPATH']}"}
    command = [sys.executable, str(PROGRAM), *arguments(mnist_png)]
    undisturbed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert undisturbed.returncode == 0, undisturbed.stderr
    weights, accuracy = result(undisturbed.stdout)
    assert accuracy > 0.6

    with ChaosJob(RunOptions(tuple(command), tmp_path, workers=2, max_workers=2, lease=10.0, quiet=True)) as chaos:
        chaos.wait_step(3)
        killed = sorted(chaos.workers())[0]
        chaos.signal_worker(killed)
        stop = chaos.wait(250)
        assert stop.cause == "finished", (stop, chaos.output[-20:])
    assert result("\n".join(chaos.output)) == (weights, accuracy)
    counts = count_applied_records(tmp_path)
    assert len(counts) == 2400 * 2
    assert set(counts.values()) == {1}
