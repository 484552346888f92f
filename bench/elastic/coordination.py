"""C8, C12, C15: the coordinator alone: killed often, writing its ledger, and with thousands of simulated workers."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import time
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.elastic import common
from bench.elastic.common import first_times, median, show, workspace
from bench.quantiles import quantile
from torchyard.elastic import wire
from torchyard.elastic.chaos import ChaosJob
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import Coordinator, CoordinatorConfig
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import Fence


def c8(kills: int = 20) -> bool:
    with workspace() as folder, ChaosJob(common.options(folder, "--epochs", "2000", workers=2, lease=5.0)) as arena:
        arena.until(lambda status: len(status["world"]) == 2 and status["step"] > 50, seconds=180)
        begun, answers = time.time(), []
        for _ in range(kills):
            time.sleep(random.uniform(0.2, 0.6))
            pid = arena.coordinator()
            moment = time.time()
            arena.kill_coordinator()
            arena.until(lambda status, old=pid: arena.coordinator() not in (None, old), seconds=30)
            answers.append(time.time() - moment)
        generation = (arena.ask("/status") or {})["generation"]
        times = [at for at, _ in first_times(folder) if at > begun]
        rows = [step for _, step in first_times(folder)]
        gaps = [b - a for a, b in pairwise(times)]
    missing = len(set(range(1, max(rows) + 1)) - set(rows))
    longest, usual = max(gaps) * 1000, median(gaps) * 1000
    figures = f"{missing} steps lost, longest gap {longest:.0f} ms (median {usual:.1f}), back in {max(answers):.2f} s"
    limit = max(2 * usual, 50)
    met = missing == 0 and longest <= limit and max(answers) <= 1.5
    figures += f", generation {generation}"
    return show("C8", f"{kills} kills of the coordinator", figures, f"0 lost, {limit:.0f} ms, 1.5 s", met=met)


def c12(commits: int = 2000) -> bool:
    with workspace() as folder:
        ledger = Ledger(folder / "ledger.db", job="bench")
        ledger.settle(StepSampler(records=commits * 10, micro_size=10))
        spent = []
        for step in range(1, commits + 1):
            begun = time.perf_counter()
            ledger.record(Fence(1, 1), [(step, 0.5, "")], world=2, by="w0")
            spent.append((time.perf_counter() - begun) * 1000)
        ledger.close()
    figures = f"p50 {median(spent):.3f} ms, p99 {quantile(spent, 0.99):.3f} ms of {commits}"
    return show("C12", "durable ledger commit", figures, "p99 0.5 ms", met=quantile(spent, 0.99) <= 0.5)


@lru_cache(maxsize=8)
def _decode(body: bytes) -> wire.Message:
    """The same news goes to thousands here, in one process: reading it once keeps the figures the coordinator's."""
    return wire.decode(body)


class _Simulated:
    """Workers without tensors: they answer `Reform` with `Report`, and wait."""

    def __init__(self, port: int, order: StepSampler) -> None:
        self._port = port
        self._config = {"order": asdict(order), "mode": "strict", "threads": 1}
        self.connections: dict[str, asyncio.StreamWriter] = {}
        self._placed: dict[str, wire.Fence] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(wire.encode(wire.Hello("bench", "t", name, config=self._config)))
        self.connections[name] = writer
        self._tasks[name] = asyncio.create_task(self._live(name, reader, writer))

    async def settled(self, after: wire.Fence) -> wire.Fence:
        """Wait until everyone has a place in one world newer than `after`."""
        while True:
            fences = {self._placed.get(name, wire.NO_FENCE) for name in self.connections}
            if len(fences) == 1 and (fence := fences.pop()) > after:
                return fence
            await asyncio.sleep(0.005)

    async def _live(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        standing = wire.WorkerProgress()
        try:
            while True:
                length = wire.frame_length(await reader.readexactly(4))
                message = _decode(await reader.readexactly(length))
                if isinstance(message, wire.StartRendezvous):
                    writer.write(wire.encode(wire.ReportProgress(message.fence, standing)))
                elif isinstance(message, wire.StartWorld):
                    standing = wire.WorkerProgress(message.fence, message.step, live=True)
                    self._placed[name] = message.fence
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def kill(self, name: str) -> None:
        self._tasks.pop(name).cancel()
        self.connections.pop(name).close()


def _coordinator(folder: str, size: int, channel: Any) -> None:
    async def serve() -> None:
        limits = WorldLimits(want=size, most=size + 1)
        settings = CoordinatorConfig(
            "bench", "t", Path(folder) / "ledger.db", limits=limits, lease=600, start_within=600
        )
        coordinator = Coordinator(settings)
        channel.send(await coordinator.start())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, channel.recv)
        before = resource.getrusage(resource.RUSAGE_SELF)
        cpu, wall = before.ru_utime + before.ru_stime, time.monotonic()
        channel.send("ready")
        await loop.run_in_executor(None, channel.recv)
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent = after.ru_utime + after.ru_stime - cpu
        took = [e["facts"]["agree_ms"] for e in coordinator.scribe.events if e["reason"] == "WorldBegan"]
        channel.send((spent, time.monotonic() - wall, took))
        await coordinator.close()

    asyncio.run(serve())


async def _drive(folder: Path, size: int, changes: int) -> tuple[float, float, list[float]]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_coordinator, args=(str(folder), size, theirs))
    process.start()
    receive = lambda: asyncio.get_running_loop().run_in_executor(None, ours.recv)  # noqa: E731
    fleet = _Simulated(await receive(), StepSampler(records=size * 10, micro_size=1, micro_batches=size + 1))
    for number in range(size):
        await fleet.join(f"w{number}")
    fence = await fleet.settled(wire.NO_FENCE)
    ours.send("measure")
    await receive()
    for change in range(changes):
        fleet.kill(random.choice(sorted(fleet.connections)))
        fence = await fleet.settled(fence)
        await asyncio.sleep(0.1)
        await fleet.join(f"n{change}")
        fence = await fleet.settled(fence)
        await asyncio.sleep(0.1)
    ours.send("done")
    spent, wall, took = await receive()
    for name in list(fleet.connections):
        fleet.kill(name)
    process.join(30)
    if process.is_alive():
        process.kill()
    return spent, wall, took[1:]


def c15(sizes: tuple[int, ...] = (64, 512, 4096), changes: int = 25) -> bool:
    """Every change is a death and a join: two worlds each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    met = True
    for size in sizes:
        with workspace() as folder:
            spent, wall, took = asyncio.run(_drive(folder, size, changes))
        share = 100 * spent / wall
        figures = f"{len(took)} worlds, agreed in p50 {median(took):.1f} ms, p99 {quantile(took, 0.99):.1f} ms"
        figures += f", {share:.0f} % of a core, {1000 * spent / max(1, len(took)):.0f} ms CPU a world"
        judged = quantile(took, 0.99) <= 50 and share <= 30 if size == 64 else None
        met &= show("C15", f"{size} simulated workers", figures, "p99 50 ms, 30 % at 64", met=judged)
    return met
