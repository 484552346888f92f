"""Fault injection: run a job in this process' background and hurt it on purpose. For tests and benchmarks.

with Arena(options) as arena:
    arena.wait_step(20)
    arena.kill_worker(arena.pick())
    assert arena.wait() == 0
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
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.run import LocalRunner, RunOptions


class ChaosJob:
    """A running job and the means to disturb it."""

    def __init__(self, options: RunOptions, *, say: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.output: list[str] = []
        self._say = say
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
            self.end()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._runner = LocalRunner(self.options, say=self._heard)
            with asyncio.Runner() as loop:
                self._loop = loop.get_loop()
                self._ready.set()
                self._outcome = loop.run(self._runner.run())
        except BaseException as failure:  # handed to whoever waits for the outcome
            self._failure = failure
        finally:
            self._ready.set()

    def _heard(self, text: str) -> None:
        self.output.append(text)
        if self._say is not None:
            self._say(text)

    def end(self) -> None:
        """Stop everything, as a shut-down machine would."""
        agent = self._runner.agent if self._runner else None
        if agent is not None:
            self._loop.call_soon_threadsafe(agent.end, wire.Stop("failed", "ended by the arena"))

    def wait(self, seconds: float = 600.0) -> wire.Stop:
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        if self._outcome is None:
            raise TimeoutError(f"the job was not done after {seconds} s; {self._position()}")
        return self._outcome

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def workers(self) -> dict[str, int]:
        """Names and process ids of the live workers."""
        agent = self._runner.agent if self._runner else None
        return {child.name: child.pid for child in list(agent.children.values())} if agent else {}

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

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One HTTP request to the coordinator; None while it does not answer."""
        assert self._runner is not None
        record = json.loads((self.options.directory / "job.json").read_text())
        request = urllib.request.Request(  # our own coordinator
            f"http://127.0.0.1:{self._runner.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {record['token']}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
                return json.load(answer)
        except OSError:
            return None

    def _position(self) -> str:
        status = self.ask("/status")
        return (
            f"step {status['step']}, phase {status['phase']}, world {status['world']}" if status else "no coordinator"
        )

    def until(
        self, true: Callable[[dict[str, Any]], bool], *, seconds: float = 120.0, every: float = 0.02
    ) -> dict[str, Any]:
        """Wait for a status that satisfies a condition. Each look costs the machine some milliseconds of work."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.alive:
            status = self.ask("/status")
            if status is not None and true(status):
                return dict(status)
            time.sleep(every)
        raise TimeoutError(f"not seen within {seconds} s; {self._position()}; said {self.output[-5:]}")

    def wait_step(self, step: int, *, seconds: float = 120.0) -> dict[str, Any]:
        return self.until(lambda status: status["step"] >= step, seconds=seconds)


def rampage(arena: ChaosJob, *, seed: int, kills: int, pause: tuple[float, float] = (0.1, 0.6)) -> Counter[str]:
    """Kill workers, the coordinator, or both, at random moments, until `kills` are done or the job is over."""
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    while arena.alive and done["worker"] + done["coordinator"] < kills:
        # Blows at a job that is already down prove little: let a world of several stand first.
        with suppress(TimeoutError):
            arena.until(lambda status: len(status["world"]) > 1 and status["phase"] == "Running", seconds=30)
        time.sleep(rng.uniform(*pause))
        what = rng.choices(["worker", "coordinator", "both", "all"], [6, 2, 1, 0.3])[0]
        workers = sorted(arena.workers())
        if what in ("coordinator", "both") and arena.coordinator() is not None:
            arena.kill_coordinator()
            done["coordinator"] += 1
        if what in ("worker", "both") and workers:
            arena.signal_worker(rng.choice(workers))
            done["worker"] += 1
        if what == "all":
            for name in workers:
                arena.signal_worker(name)
                done["worker"] += 1
    return done


def lineage(directory: Path) -> dict[tuple[int, int], int]:
    """How often every (epoch, record) is in the model, read from the ledger and the data order alone."""
    path = directory / "ledger.db"
    with closing(sqlite3.connect(path)) as db:
        job = db.execute("select value from meta where key='job'").fetchone()[0]
    ledger = Ledger(path, job=job)
    try:
        order = ledger.order
        assert order is not None
        seen: Counter[tuple[int, int]] = Counter()
        for row in ledger.rows():
            permute = order.permutation(row.epoch)
            for position in range(row.lo, row.hi):
                seen[row.epoch, permute(position) if order.shuffle else position] += 1
        return dict(seen)
    finally:
        ledger.close()
