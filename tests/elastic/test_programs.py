"""The programs of `zoo.py` and `zoo_unusual.py`: alone, with two and with three workers under kills, the same model."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.zoo_programs import ALL, UNUSUAL, USUAL, Undisturbed, check_model, program

from torchyard.elastic.chaos import count_applied_records

pytestmark = pytest.mark.train
if importlib.util.find_spec("numpy") is None:
    pytest.skip("the programs need NumPy, which is not installed", allow_module_level=True)


ALWAYS = ("complex_parameters", "optimizer_with_noise", "buffers_that_are_assigned", "temporary_attributes")
"""Unusual programs that the short run has too, with two workers."""
CASES = [(name, workers) for name in USUAL for workers in (2, 3)] + (
    [(name, workers) for name in UNUSUAL for workers in (2, 3)]
    if os.environ.get("TORCHYARD_TESTS") == "full"
    else [(name, 2) for name in ALWAYS]
)


def test_there_are_at_least_25_programs() -> None:
    assert len(ALL) >= 60


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_a_program_gives_the_same_model_in_every_world_and_under_kills(
    name: str, workers: int, fork_server: ForkServer, undisturbed: Undisturbed, tmp_path: Path
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
    check_model(name, output, undisturbed(name), name)
    if name != "early_stop":
        assert set(count_applied_records(tmp_path).values()) == {1}
