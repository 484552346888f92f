"""Programs with several trainings: kills in each of them and between them, and the same model at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard.elastic.chaos import count_applied_records
from torchyard.elastic.coordinator.trainings import Trainings

pytestmark = pytest.mark.train
PROGRAM = PROGRAMS / "trainings.py"


@pytest.fixture(scope="module")
def reference(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The output of the program that trains alone, undisturbed."""
    folder = tmp_path_factory.mktemp("alone")

    def train_alone(kind: str) -> str:
        if not (folder / kind).exists():
            environment = {"TORCHYARD_ELASTIC_COORDINATOR": ""}
            fork_server.wait(fork_server.fork([str(PROGRAM), kind], environment, folder / kind))
        return (folder / kind).read_text()

    return train_alone


def first_of(output: str) -> set[str]:
    return set(re.findall(r"first (\w+)", output))


def trainings_of(job: SmallJob) -> Trainings:
    return job.server.coordinator.trainings


def kill_one(job: SmallJob, workers: int) -> None:
    """Kill a member of the world, and wait for its replacement."""
    job.kill(job.server.coordinator.membership.world[0])
    replacement = job.add_worker()
    job.wait_for_world(workers, step=2, member=replacement)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["whole", "early"])
def test_kills_in_either_training_change_no_bit(
    kind: str, workers: int, fork_server: ForkServer, reference: Callable[[str], str], tmp_path: Path
) -> None:
    job = SmallJob(fork_server, [str(PROGRAM), kind], tmp_path, workers=workers)
    job.wait_for_world(workers, step=2)
    kill_one(job, workers)
    job.release()
    job.wait_until(lambda: trainings_of(job).number == 2)
    job.wait_for_world(workers, step=2)
    kill_one(job, workers)
    for name in job.server.coordinator.membership.world[1:]:
        job.kill(name)
    (tmp_path / "go-2").touch()
    output = job.finish()
    assert digest_of(output) == digest_of(reference(kind))
    assert first_of(output) == first_of(reference(kind))
    assert set(count_applied_records(tmp_path).values()) == {1}
    assert set(count_applied_records(tmp_path, training=1).values()) == {1}


def test_the_coordinator_may_die_in_the_second_training(
    fork_server: ForkServer, reference: Callable[[str], str], tmp_path: Path
) -> None:
    job = SmallJob(fork_server, [str(PROGRAM), "whole"], tmp_path, workers=2)
    job.release()
    job.wait_until(lambda: trainings_of(job).number == 2)
    job.wait_for_world(2, step=2)
    job.restart_coordinator()
    assert trainings_of(job).number == 2
    job.wait_for_world(2, step=2)
    kill_one(job, 2)
    (tmp_path / "go-2").touch()
    assert digest_of(job.finish()) == digest_of(reference("whole"))


def run_program(kind: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchyard.elastic", "run", "-n", "2", "--dir", str(folder / "job"), "--"]
    return subprocess.run(
        [*command, sys.executable, str(PROGRAM), kind],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_finished_program_runs_again_from_its_checkpoints(reference: Callable[[str], str], tmp_path: Path) -> None:
    for _ in range(2):
        done = run_program("whole", tmp_path, TRAININGS_CHECKPOINTS=str(tmp_path / "checkpoints"))
        assert done.returncode == 0, done.stderr + done.stdout
        assert digest_of(done.stdout) == digest_of(reference("whole"))
    assert "nothing is left to train" in done.stdout + done.stderr


def test_a_training_whose_last_state_is_lost_is_trained_again(reference: Callable[[str], str], tmp_path: Path) -> None:
    """Without checkpoints, the states in shared memory end with the run."""
    for _ in range(2):
        done = run_program("whole", tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout
        assert digest_of(done.stdout) == digest_of(reference("whole"))
    assert set(count_applied_records(tmp_path / "job", training=1).values()) == {1}


def test_trainings_that_are_not_declared_are_refused(tmp_path: Path) -> None:
    done = run_program("undeclared", tmp_path)
    assert done.returncode == 1
    assert "elastic.join(trainings=2)" in done.stdout + done.stderr


def test_a_program_that_ends_before_its_last_training_fails(tmp_path: Path) -> None:
    done = run_program("missing", tmp_path)
    assert done.returncode == 1
    assert "the program ended after training 1, but it declares 2" in done.stdout + done.stderr
