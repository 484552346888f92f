"""Random faults on many programs, by seed: `-k "[17]"` replays number 17."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from tests.elastic.fault_schedules import run_schedule
from tests.elastic.forked_workers import ForkServer
from tests.elastic.zoo_programs import Undisturbed

pytestmark = pytest.mark.train
if importlib.util.find_spec("numpy") is None:
    pytest.skip("the programs need NumPy, which is not installed", allow_module_level=True)
SEEDS = range(500 if os.environ.get("TORCHYARD_TESTS") == "full" else 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_lose_no_record_and_change_no_bit(
    seed: int, fork_server: ForkServer, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run_schedule(seed, fork_server, undisturbed, tmp_path)
