"""Random faults on the programs of `zoo_programs.py`, by seed.

`python -m tests.elastic.fault_schedules 17 30-39` runs these seeds without pytest, `--parallel` in several processes.
Where this process may mount a tmpfs, a third of the programs save checkpoints on one that becomes full and empty again.
The wall clock of the coordinator jumps by hours and days; `test_clock_jumps.py` has that of all programs of a job.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.small_disk import fill, small_disk
from tests.elastic.zoo_programs import ALL, Undisturbed, check_model, program

from torchyard.elastic.chaos import count_applied_records
from torchyard.elastic.checkpoint.files import newest_valid

LEFT_OUT = ("early_stop", "patience_in_the_state")
"""The first ends before all records are counted. A seed would mean another program if the second took part."""
LEASE = 2.0
"""Short, so that a stopped worker is expelled; the lease grows if a slow machine needs it."""


class CoordinatorClock:
    """The wall clock of the coordinator, which runs in this process."""

    def __init__(self) -> None:
        self.offset_hours = 0
        self._real = time.time

    def __enter__(self) -> CoordinatorClock:
        real = self._real
        time.time = lambda: real() + 3600 * self.offset_hours
        return self

    def __exit__(self, *_: object) -> None:
        time.time = self._real


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


def run_schedule(seed: int, fork_server: ForkServer, undisturbed: Callable[[str], str], folder: Path) -> str:
    """Run one program under the faults of a seed, and check its model and records. Return what was done."""
    rng = random.Random(seed)
    name = rng.choice([name for name in ALL if name not in LEFT_OUT])
    workers, has_disk = rng.randint(1, 4), rng.random() < 1 / 3
    with CoordinatorClock() as clock, small_disk(folder / "disk") as mounted:
        disk = mounted if has_disk else None
        environment = {"ZOO_CHECKPOINTS": str(disk / "checkpoints")} if disk else {}
        job = SmallJob(fork_server, program(name), folder, workers=workers, lease=LEASE, environment=environment)
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
    check_model(name, output, undisturbed(name), (name, names))
    assert set(count_applied_records(folder).values()) == {1}, (name, names)
    return f"{name}, {workers} workers: {', '.join(names)}"


def _run_seeds(seeds: list[int], deadline: float) -> int:
    """Run seeds one after the other; print a line for each, and return how many failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fault-schedules-") as base:
        fork_server = ForkServer()
        undisturbed = Undisturbed(fork_server, Path(base))
        for seed in seeds:
            if time.monotonic() > deadline:
                break
            try:
                folder = Path(base, f"seed-{seed}")
                folder.mkdir()
                print(f"seed {seed} passed: {run_schedule(seed, fork_server, undisturbed, folder)}", flush=True)
            except Exception:
                failed += 1
                print(f"seed {seed} FAILED: {traceback.format_exc()}", flush=True)
        fork_server.close()
    return failed


def _parse_seeds(texts: list[str]) -> list[int]:
    ranges = [(text.split("-")[0], text.split("-")[-1]) for text in texts]
    return [seed for first, last in ranges for seed in range(int(first), int(last) + 1)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="+", help="numbers and ranges, such as 17 30-39")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="after this time no further seed begins")
    args = parser.parse_args()
    seeds = _parse_seeds(args.seeds)
    if args.parallel == 1:
        return 1 if _run_seeds(seeds, time.monotonic() + args.seconds) else 0
    command = [sys.executable, "-m", "tests.elastic.fault_schedules", "--seconds", str(args.seconds)]
    shares = [seeds[start :: args.parallel] for start in range(min(args.parallel, len(seeds)))]
    children = [subprocess.Popen([*command, *map(str, share)]) for share in shares]
    return max(child.wait() for child in children)


if __name__ == "__main__":
    sys.exit(main())
