"""The programs of `zoo.py` and `zoo_unusual.py`: alone, with two and with three workers under kills, the same model."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.elastic.conftest import PROGRAMS, digest_of
from tests.elastic.forked_workers import ForkServer, SmallJob

from torchyard.elastic.chaos import count_applied_records

pytestmark = pytest.mark.train
if importlib.util.find_spec("numpy") is None:
    pytest.skip("the programs need NumPy, which is not installed", allow_module_level=True)


def programs(path: Path) -> dict[str, Path]:
    """Return the names of the programs in a file."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: path
        for node in functions
        if any(getattr(name, "id", "") == "program" for name in node.decorator_list)
    }


USUAL, UNUSUAL = programs(PROGRAMS / "zoo.py"), programs(PROGRAMS / "zoo_unusual.py")
ALL = USUAL | UNUSUAL
ALWAYS = ("complex_parameters", "optimizer_with_noise", "buffers_that_are_assigned", "temporary_attributes")
"""Unusual programs that the short run has too, with two workers."""
CASES = [(name, workers) for name in USUAL for workers in (2, 3)] + (
    [(name, workers) for name in UNUSUAL for workers in (2, 3)]
    if os.environ.get("TORCHYARD_TESTS") == "full"
    else [(name, 2) for name in ALWAYS]
)
TOLERANCE = {"fast_mode": 1e-4, "fast_mode_checkpointed_layer": 1e-4, "buffers_that_are_assigned_in_fast_mode": 1e-4}
"""Programs whose last bits may depend on the number of workers, and how much the sum of their parameters may differ."""


def program(name: str) -> list[str]:
    """Return the arguments of Python for a program."""
    return [str(ALL[name]), name]


@pytest.fixture(scope="module")
def reference(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The output of a program that trains alone, undisturbed."""
    folder = tmp_path_factory.mktemp("alone")

    def train_alone(name: str) -> str:
        if not (folder / name).exists():
            fork_server.wait(fork_server.fork(program(name), {"TORCHYARD_ELASTIC_COORDINATOR": ""}, folder / name))
        return (folder / name).read_text()

    return train_alone


def test_there_are_at_least_25_programs() -> None:
    assert len(ALL) >= 60


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_a_program_gives_the_same_model_in_every_world_and_under_kills(
    name: str, workers: int, fork_server: ForkServer, reference: Callable[[str], str], tmp_path: Path
) -> None:
    job = SmallJob(fork_server, program(name), tmp_path, workers=workers)
    job.wait_for_world(workers, step=2)
    job.kill(job.server.coordinator.membership.world[0])
    replacement = job.add_worker()
    job.wait_for_world(workers, step=2, member=replacement)
    if workers > 2:
        for victim in job.server.coordinator.membership.world[1:]:
            job.kill(victim)
    output = job.finish()
    if name in TOLERANCE:
        sums = [float(value) for value in re.findall(r"sum (\S+)", output + reference(name))]
        assert max(sums) - min(sums) <= TOLERANCE[name], sums
    else:
        assert digest_of(output) == digest_of(reference(name))
    if name != "early_stop":
        assert set(count_applied_records(tmp_path).values()) == {1}
