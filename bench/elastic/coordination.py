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
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import CoordinatorServer
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import Fence


def c8(kills: int = 20) -> bool:
    with workspace() as folder, ChaosJob(common.options(folder, "--epochs", "2000", workers=2, lease=5.0)) as chaos:
        chaos.wait_until(lambda status: len(status["world"]) == 2 and status["step"] > 50, seconds=180)
        begun, answers = time.time(), []
        for _ in range(kills):
            time.sleep(random.uniform(0.2, 0.6))
            pid = chaos.coordinator()
            moment = time.time()
            chaos.kill_coordinator()
            chaos.wait_until(lambda status, old=pid: chaos.coordinator() not in (None, old), seconds=30)
            answers.append(time.time() - moment)
        generation = (chaos.request("/status") or {})["generation"]
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
        ledger.fix_sampler(StepSampler(records=commits * 10, micro_size=10))
        cpu_seconds = []
        for step in range(1, commits + 1):
            begun = time.perf_counter()
            ledger.record_steps(Fence(1, 1), [(step, 0.5, "")], world=2, by="w0")
            cpu_seconds.append((time.perf_counter() - begun) * 1000)
        ledger.close()
    figures = f"p50 {median(cpu_seconds):.3f} ms, p99 {quantile(cpu_seconds, 0.99):.3f} ms of {commits}"
    return show("C12", "durable ledger commit", figures, "p99 0.5 ms", met=quantile(cpu_seconds, 0.99) <= 0.5)


@lru_cache(maxsize=8)
def _decode(body: bytes) -> wire.Message:
    """Decode a message once for all workers of this process, so that the figures are those of the coordinator."""
    return wire.decode(body)


class _SimulatedWorkers:
    """Workers without tensors: they reply to `StartRendezvous` with `ReportProgress`."""

    def __init__(self, port: int, sampler: StepSampler) -> None:
        self._port = port
        self._config = {"sampler": asdict(sampler), "mode": "strict", "threads": 1}
        self.connections: dict[str, asyncio.StreamWriter] = {}
        self._fences: dict[str, wire.Fence] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        authentication = wire.Authentication("bench", "t", name)
        writer.write(wire.encode_opening(authentication, wire.Hello(name, config=self._config)))
        self.connections[name] = writer
        self._tasks[name] = asyncio.create_task(self._live(name, reader, writer))

    async def wait_for_world(self, after: wire.Fence) -> wire.Fence:
        """Wait until all workers are in one world newer than `after`."""
        while True:
            fences = {self._fences.get(name, wire.NO_FENCE) for name in self.connections}
            if len(fences) == 1 and (fence := fences.pop()) > after:
                return fence
            await asyncio.sleep(0.005)

    async def _live(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        progress = wire.WorkerProgress()
        try:
            while True:
                length = wire.frame_length(await reader.readexactly(4))
                message = _decode(await reader.readexactly(length))
                if isinstance(message, wire.StartRendezvous):
                    writer.write(wire.encode(wire.ReportProgress(message.fence, progress)))
                elif isinstance(message, wire.StartWorld):
                    progress = wire.WorkerProgress(message.fence, message.step, live=True)
                    self._fences[name] = message.fence
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def kill(self, name: str) -> None:
        self._tasks.pop(name).cancel()
        self.connections.pop(name).close()


def _coordinator(folder: str, size: int, channel: Any) -> None:
    async def serve() -> None:
        limits = WorldLimits(target_workers=size, max_workers=size + 1)
        settings = CoordinatorConfig(
            "bench", "t", Path(folder) / "ledger.db", limits=limits, lease=600, start_within=600
        )
        server = CoordinatorServer(settings)
        channel.send(await server.start())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, channel.recv)
        before = resource.getrusage(resource.RUSAGE_SELF)
        cpu, wall = before.ru_utime + before.ru_stime, time.monotonic()
        channel.send("ready")
        await loop.run_in_executor(None, channel.recv)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = after.ru_utime + after.ru_stime - cpu
        agreement_ms = [
            e["facts"]["agree_ms"] for e in server.coordinator.ledger_writer.events if e["reason"] == "WorldBegan"
        ]
        channel.send((cpu_seconds, time.monotonic() - wall, agreement_ms))
        await server.close()

    asyncio.run(serve())


async def _drive(folder: Path, size: int, changes: int) -> tuple[float, float, list[float]]:
    channel, coordinator_end = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_coordinator, args=(str(folder), size, coordinator_end)
    )
    process.start()
    receive = lambda: asyncio.get_running_loop().run_in_executor(None, channel.recv)  # noqa: E731
    simulated = _SimulatedWorkers(await receive(), StepSampler(records=size * 10, micro_size=1, micro_batches=size + 1))
    for number in range(size):
        await simulated.join(f"w{number}")
    fence = await simulated.wait_for_world(wire.NO_FENCE)
    channel.send("measure")
    await receive()
    for change in range(changes):
        simulated.kill(random.choice(sorted(simulated.connections)))
        fence = await simulated.wait_for_world(fence)
        await asyncio.sleep(0.1)
        await simulated.join(f"n{change}")
        fence = await simulated.wait_for_world(fence)
        await asyncio.sleep(0.1)
    channel.send("done")
    cpu_seconds, wall, agreement_ms = await receive()
    for name in list(simulated.connections):
        simulated.kill(name)
    process.join(30)
    if process.is_alive():
        process.kill()
    return cpu_seconds, wall, agreement_ms[1:]


def c15(sizes: tuple[int, ...] = (64, 512, 4096), changes: int = 25) -> bool:
    """Every change is a death and a join, with one world each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    met = True
    for size in sizes:
        with workspace() as folder:
            cpu_seconds, wall, agreement_ms = asyncio.run(_drive(folder, size, changes))
        share = 100 * cpu_seconds / wall
        figures = f"{len(agreement_ms)} worlds, agreed in p50 {median(agreement_ms):.1f} ms"
        figures += f", p99 {quantile(agreement_ms, 0.99):.1f} ms"
        figures += f", {share:.0f} % of a core, {1000 * cpu_seconds / max(1, len(agreement_ms)):.0f} ms CPU a world"
        judged = quantile(agreement_ms, 0.99) <= 50 and share <= 30 if size == 64 else None
        met &= show("C15", f"{size} simulated workers", figures, "p99 50 ms, 30 % at 64", met=judged)
    return met
