"""Fault injection: runs a job in a background thread and kills parts of it. For tests and benchmarks.

with ChaosJob(options) as job:
    job.wait_step(20)
    job.signal_worker(sorted(job.workers())[0])
    assert job.wait().cause is StopCause.FINISHED
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.job_record import read_record
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.run import LocalRunner, RunOptions
from torchyard.elastic.sampler import StepSampler


class ChaosJob:
    """A running job, and methods to disturb and observe it."""

    def __init__(self, options: RunOptions, *, write_line: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.output: list[str] = []
        self._write_line = write_line
        self._outcome: wire.Stop | None = None
        self._runner: LocalRunner | None = None
        self._thread = threading.Thread(target=self._run, name="arena", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> ChaosJob:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread.is_alive():
            self.shut_down()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._runner = LocalRunner(self.options, write_line=self._on_line)
            with asyncio.Runner() as loop:
                self._loop = loop.get_loop()
                self._ready.set()
                self._outcome = loop.run(self._runner.run())
        except BaseException as failure:  # `wait` raises it
            self._failure = failure
        finally:
            self._ready.set()

    def _on_line(self, text: str) -> None:
        self.output.append(text)
        if self._write_line is not None:
            self._write_line(text)

    def shut_down(self) -> None:
        """End the job and all its processes, as the shutdown of a machine does."""
        agent = self._runner.agent if self._runner else None
        if agent is not None:
            self._loop.call_soon_threadsafe(agent.end, wire.Stop(wire.StopCause.FAILED, "ended by the fault injection"))

    def wait(self, seconds: float = 600.0) -> wire.Stop:
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        if self._outcome is None:
            raise TimeoutError(f"the job did not end within {seconds} s; {self._describe_position()}")
        return self._outcome

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def workers(self) -> dict[str, int]:
        """Return the names and process ids of the live workers."""
        agent = self._runner.agent if self._runner else None
        return {process.name: process.pid for process in list(agent.processes.values())} if agent else {}

    def coordinator(self) -> int | None:
        return self._runner.coordinator_pid if self._runner else None

    def signal_worker(self, name: str, number: int = signal.SIGKILL) -> None:
        pid = self.workers().get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_coordinator(self) -> None:
        pid = self.coordinator()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one HTTP request to the coordinator, and return the response; None while it does not respond."""
        assert self._runner is not None
        record = read_record(self.options.directory)
        http_request = urllib.request.Request(  # the job's own coordinator
            f"http://127.0.0.1:{self._runner.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {record['token']}"},
        )
        try:
            with urllib.request.urlopen(http_request, timeout=2) as response:  # noqa: S310
                return json.load(response)
        except OSError:
            return None

    def _describe_position(self) -> str:
        status = self.request("/status")
        return (
            f"step {status['step']}, phase {status['phase']}, world {status['world']}" if status else "no coordinator"
        )

    def wait_until(
        self, condition: Callable[[dict[str, Any]], bool], *, seconds: float = 120.0, every: float = 0.02
    ) -> dict[str, Any]:
        """Wait for a status that satisfies a condition. Each request costs the machine some milliseconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.alive:
            status = self.request("/status")
            if status is not None and condition(status):
                return dict(status)
            time.sleep(every)
        raise TimeoutError(
            f"the condition was not met within {seconds} s; {self._describe_position()}; output {self.output[-5:]}"
        )

    def wait_step(self, step: int, *, seconds: float = 120.0) -> dict[str, Any]:
        return self.wait_until(lambda status: status["step"] >= step, seconds=seconds)


def kill_randomly(job: ChaosJob, *, seed: int, kills: int, pause: tuple[float, float] = (0.1, 0.6)) -> Counter[str]:
    """Kill workers, the coordinator, or both at random moments, until `kills` are dead or the job has ended."""
    rng = random.Random(seed)
    kills_done: Counter[str] = Counter()
    while job.alive and kills_done["worker"] + kills_done["coordinator"] < kills:
        # To kill parts of a job that does not run proves little: wait for a world of several workers first.
        with suppress(TimeoutError):
            job.wait_until(lambda status: len(status["world"]) > 1 and status["phase"] == "Running", seconds=30)
        time.sleep(rng.uniform(*pause))
        target = rng.choices(["worker", "coordinator", "both", "all"], [6, 2, 1, 0.3])[0]
        workers = sorted(job.workers())
        if target in ("coordinator", "both") and job.coordinator() is not None:
            job.kill_coordinator()
            kills_done["coordinator"] += 1
        if target in ("worker", "both") and workers:
            job.signal_worker(rng.choice(workers))
            kills_done["worker"] += 1
        if target == "all":
            for name in workers:
                job.signal_worker(name)
                kills_done["worker"] += 1
    return kills_done


def count_applied_records(directory: Path, *, training: int | None = None) -> dict[tuple[int, int], int]:
    """Return how often the model contains every (epoch, record), from the ledger and the sampler alone.

    Args:
        directory: the directory of the job.
        training: the number of a finished training of the program; None for the last one.
    """
    path = directory / "ledger.db"
    with closing(sqlite3.connect(path)) as db:
        job = db.execute("select value from meta where key='job'").fetchone()[0]
    ledger = Ledger(path, job=job)
    try:
        if training is None:
            sampler, spans = ledger.sampler, [(row.epoch, row.lo, row.hi) for row in ledger.rows()]
        else:
            sampler = StepSampler(**ledger.finished_trainings[training - 1]["sampler"])
            spans = [row[1:] for row in ledger.finished_rows(training)]
        assert sampler is not None
        counts: Counter[tuple[int, int]] = Counter()
        for epoch, lo, hi in spans:
            permute = sampler.permutation(epoch)
            for position in range(lo, hi):
                counts[epoch, permute(position) if sampler.shuffle else position] += 1
        return dict(counts)
    finally:
        ledger.close()
