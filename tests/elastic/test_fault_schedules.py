"""Random faults on the programs of `test_programs.py`, by seed: `-k "[17]"` replays number 17.

Where this process may mount a tmpfs, a third of the programs save checkpoints on one that becomes full and empty again.
The wall clock of the coordinator jumps by hours and days; `test_clock_jumps.py` has that of all programs of a job.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.elastic.conftest import digest_of
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.small_disk import fill, small_disk
from tests.elastic.test_programs import ALL, TOLERANCE, program, reference  # noqa: F401  # a fixture

from torchyard.elastic.chaos import count_applied_records
from torchyard.elastic.checkpoint.files import newest_valid

pytestmark = pytest.mark.train
if importlib.util.find_spec("numpy") is None:
    pytest.skip("the programs need NumPy, which is not installed", allow_module_level=True)
SEEDS = range(500 if os.environ.get("TORCHYARD_TESTS") == "full" else 4)
LEASE = 2.0
"""Short, so that a stopped worker is expelled; the lease grows if a slow machine needs it."""


class CoordinatorClock:
    """The wall clock of the coordinator, which runs in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset_hours = 0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600 * self.offset_hours)


class Faults:
    """Faults of one job, in a random order."""

    def __init__(self, job: SmallJob, rng: random.Random, disk: Path | None, clock: CoordinatorClock) -> None:
        self._job = job
        self._rng = rng
        self._clock = clock
        self._filler = disk / "filler" if disk else None
        self._stopped: list[int] = []

    def _world(self) -> list[str]:
        return [name for name in self._job.server.coordinator.membership.world if name in self._job.pids]

    def kill(self) -> None:
        world = self._world()
        for name in self._rng.sample(world, min(len(world), self._rng.choice([1, 1, 2]))):
            self._job.kill(name)
            self._job.add_worker()

    def kill_all(self) -> None:
        for name in self._world():
            self._job.kill(name)
            self._job.add_worker()

    def stop(self) -> None:
        """Stop a worker for good: its lease ends."""
        for name in self._world()[:1]:
            with suppress(ProcessLookupError):
                os.kill(self._job.pids[name], signal.SIGSTOP)
                self._stopped.append(self._job.pids[name])
            self._job.add_worker()

    def slow(self) -> None:
        """Stop a worker for a moment; one that is stopped for good stays so."""
        for name in [name for name in self._world() if self._job.pids[name] not in self._stopped][-1:]:
            with suppress(ProcessLookupError):
                os.kill(self._job.pids[name], signal.SIGSTOP)
                time.sleep(self._rng.uniform(0.05, 0.3))
                os.kill(self._job.pids[name], signal.SIGCONT)

    def leave(self) -> None:
        for name in self._world()[:1]:
            with suppress(ProcessLookupError):
                os.kill(self._job.pids[name], signal.SIGTERM)
            self._job.add_worker()

    def resize(self) -> None:
        workers = self._rng.randint(1, 4)
        self._job.scale(workers)
        for _ in range(workers - len(self._world())):
            self._job.add_worker()

    def restart_coordinator(self) -> None:
        self._job.restart_coordinator()

    def stall_coordinator(self) -> None:
        self._job.stall_coordinator(self._rng.uniform(0.1, 1.5 * LEASE))

    def jump_clock(self) -> None:
        self._clock.offset_hours = self._rng.choice([-100, -5, 0, 1, 48, 24 * 400])

    def fill_disk(self) -> None:
        """Leave no room for checkpoints, until the next call or the end of the faults."""
        if self._filler is None:
            return
        if self._filler.exists():
            self._filler.unlink()
            return
        fill(self._filler)

    def run(self, count: int) -> list[str]:
        """Cause `count` faults, and return their names."""
        kinds: list[Callable[[], None]] = [
            self.kill,
            self.kill_all,
            self.stop,
            self.slow,
            self.leave,
            self.resize,
            self.restart_coordinator,
            self.stall_coordinator,
            self.jump_clock,
            *([self.fill_disk] * 2 if self._filler else ()),
        ]
        names = []
        for _ in range(count):
            fault = self._rng.choice(kinds)
            names.append(fault.__name__)
            fault()
            time.sleep(self._rng.uniform(0.0, 0.4))
        if self._filler is not None:
            self._filler.unlink(missing_ok=True)
        return names

    def end(self) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_lose_no_record_and_change_no_bit(
    seed: int,
    fork_server: ForkServer,
    reference: Callable[[str], str],  # noqa: F811  # the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(seed)
    clock = CoordinatorClock(monkeypatch)
    name = rng.choice([name for name in ALL if name != "early_stop"])
    workers, has_disk = rng.randint(1, 4), rng.random() < 1 / 3
    with small_disk(tmp_path / "disk") as mounted:
        disk = mounted if has_disk else None
        environment = {"ZOO_CHECKPOINTS": str(disk / "checkpoints")} if disk else {}
        job = SmallJob(fork_server, program(name), tmp_path, workers=workers, lease=LEASE, environment=environment)
        try:
            job.wait_until(lambda: job.server.coordinator.membership.step >= 1)
            faults = Faults(job, rng, disk, clock)
            names = faults.run(rng.randint(2, 5))
            job.release()
            job.wait_for_end()
            steps = job.server.coordinator.membership.step
            faults.end()
            output = job.finish()
        except BaseException:
            job.close()
            raise
        if disk and (disk / "checkpoints").exists():
            saved = newest_valid(disk / "checkpoints")
            assert saved is not None and saved[1].step == steps, (name, names, saved)
    if name in TOLERANCE:
        sums = [float(value) for value in re.findall(r"sum (\S+)", output + reference(name))]
        assert max(sums) - min(sums) <= TOLERANCE[name], (names, sums)
    else:
        assert digest_of(output) == digest_of(reference(name)), (name, names)
    assert set(count_applied_records(tmp_path).values()) == {1}, (name, names)
