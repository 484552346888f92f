"""Hugging Face Trainer, TRL and Lightning under kills and resizes: every record once, same model, same logs."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard.elastic.chaos import count_applied_records

pytestmark = pytest.mark.train
KINDS = {
    "trainer": ("hugging_face.py", "transformers"),
    "sft": ("hugging_face.py", "trl"),
    "lightning": ("lightning_module.py", "lightning"),
}
KINDS = {kind: entry for kind, entry in KINDS.items() if (PROGRAMS / entry[0]).exists()}
SEEDS = range(34 if os.environ.get("TORCHYARD_TESTS") == "full" else 1)
"""Each seed kills at least twice and resizes once: the long run has more than a hundred faults for each framework."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def command(kind: str, folder: Path) -> list[str]:
    program, package = KINDS[kind]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed in this environment (see frameworks-venv in the Makefile)")
    return [str(PROGRAMS / program), kind, str(folder)]


@pytest.fixture(scope="module")
def reference(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The output of a program that trains alone, undisturbed."""
    folder = tmp_path_factory.mktemp("alone")

    def train_alone(kind: str) -> str:
        output = folder / f"{kind}.log"
        if not output.exists():
            environment = {"TORCHYARD_ELASTIC_COORDINATOR": "", "ZOO_HOLD": "", **OFFLINE}
            pid = fork_server.fork(command(kind, folder / kind), environment, output)
            assert fork_server.wait(pid) == 0, output.read_text()
        return output.read_text()

    return train_alone


def logs_of(output: str) -> set[str]:
    return set(re.findall(r"logs (.*)", output))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_kills_and_resizes_change_neither_the_model_nor_the_logs(
    kind: str,
    seed: int,
    fork_server: ForkServer,
    reference: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    rng = random.Random(seed)
    job = SmallJob(fork_server, command(kind, tmp_path / "out"), tmp_path, workers=2)
    job.wait_for_world(2, step=2)
    job.kill(rng.choice(job.server.coordinator.membership.world))
    replacement = job.add_worker()
    job.wait_for_world(2, step=2, member=replacement)
    job.scale(3)
    job.add_worker()
    job.wait_for_world(3, step=3)
    for name in rng.sample(job.server.coordinator.membership.world, rng.randint(1, 2)):
        job.kill(name)
    output = job.finish()
    assert digest_of(output) == digest_of(reference(kind))
    assert logs_of(output) == logs_of(reference(kind))
    assert set(count_applied_records(tmp_path).values()) == {1}
    assert list((tmp_path / "out").rglob("*15*")), "the last step has a checkpoint of the framework"


@pytest.mark.parametrize("kind", KINDS)
def test_fast_mode_trains_the_model_of_strict_mode(
    kind: str, fork_server: ForkServer, reference: Callable[[str], str], tmp_path: Path
) -> None:
    """A framework clears the gradients before each micro-batch, and those of the last one are sent during backward."""
    alone, environment = tmp_path / "alone", {"ZOO_HOLD": "", "ZOO_MODE": "fast", **OFFLINE}
    pid = fork_server.fork(command(kind, tmp_path / "a"), environment | {"TORCHYARD_ELASTIC_COORDINATOR": ""}, alone)
    assert fork_server.wait(pid) == 0, alone.read_text()
    job = SmallJob(fork_server, command(kind, tmp_path / "b"), tmp_path, workers=2, environment=environment)
    sums = [float(text) for text in re.findall(r"sum (\S+)", reference(kind) + alone.read_text() + job.finish())]
    assert len(sums) == 4
    assert max(sums) - min(sums) <= 1e-3 * min(sums), sums


def test_a_trainer_resumes_from_its_own_checkpoint(
    fork_server: ForkServer, reference: Callable[[str], str], tmp_path: Path
) -> None:
    """It was saved before the evaluation of its epoch, so that the resumed logs lack that one, as without the job."""
    environment = {"TORCHYARD_ELASTIC_COORDINATOR": "", "ZOO_HOLD": "", **OFFLINE}
    folder = tmp_path / "out"
    argv = command("trainer", folder)
    assert fork_server.wait(fork_server.fork(argv, environment, tmp_path / "first")) == 0
    shutil.rmtree(folder / "checkpoint-15")
    argv[1] = "resume"
    pid = fork_server.fork(argv, environment, tmp_path / "second")
    assert fork_server.wait(pid) == 0, (tmp_path / "second").read_text()
    assert digest_of((tmp_path / "second").read_text()) == digest_of(reference("trainer"))


CHECK_STRATEGY = """
import sys, importlib, torch
pytorch = importlib.import_module(sys.argv[1])
from torchyard import elastic
from torchyard.elastic.lightning import ElasticStrategy
assert issubclass(ElasticStrategy, pytorch.strategies.Strategy)
torch.cuda.current_device = lambda: 1
strategy = ElasticStrategy(elastic.join())
print(strategy.root_device)
strategy.accelerator = object.__new__(pytorch.accelerators.CUDAAccelerator)
print(strategy.root_device)
"""


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_the_strategy_follows_the_package_and_the_accelerator_of_the_program(package: str) -> None:
    """Lightning is published under two names; on a machine with a GPU its Trainer chooses that by itself."""
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"the package {package} is not installed in this environment (see frameworks-venv in the Makefile)")
    done = subprocess.run([sys.executable, "-c", CHECK_STRATEGY, package], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["cpu", "cuda:1"], done.stderr
