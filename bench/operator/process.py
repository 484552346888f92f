"""The operator as a process, and what its metrics say."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tests.support.process import Process, free_port

CALM_SECONDS = 4.0


class Operator:
    """Started at once; `ready` waits until it could act, `leads` until it does."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._metrics, self._health = free_port(), free_port()
        command = [sys.executable, "-m", "torchyard.cli", "operator", "--kubeconfig", str(kubeconfig), "--no-webhook"]
        command += ["--host", "127.0.0.1", "--metrics-port", str(self._metrics), "--health-port", str(self._health)]
        command += ["--status-port", "0", "--samples-port", "0"]  # two copies run beside each other
        self._process = Process(command, log, env={"PYTHONPATH": os.pathsep.join(sys.path)})
        self._looked_at = psutil.Process(self._process.pid)

    async def ready(self) -> None:
        await until(self._answers, "the operator is ready")

    async def leads(self) -> None:
        await self.ready()
        await until(lambda: self.figures().leads, "the operator leads")

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu(self) -> float:
        """Seconds of a core so far."""
        return _seconds(self._looked_at)

    def rss(self) -> float:
        return float(self._looked_at.memory_info().rss) / 1e6

    def figures(self) -> Figures:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=10) as answer:
            return Figures(answer.read().decode())

    async def quiet(self) -> None:
        """Until it has nothing more to write, its last event included; between events it may rest a little."""
        before, since = -1.0, time.monotonic()
        while time.monotonic() - since < CALM_SECONDS:
            await asyncio.sleep(0.5)
            if (calls := self.figures().calls) != before:
                before, since = calls, time.monotonic()

    def _answers(self) -> bool:
        if not self._process.running:
            raise RuntimeError(f"the operator ended with {self._process.returncode}:\n{self._process.log_tail()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Cores:
    """Who spent how much of the machine's cores since `begin`: this process, the server, and perhaps the operator."""

    def __init__(self, server: list[int]) -> None:
        self._server = [psutil.Process(pid) for pid in server]
        self._operator: Operator | None = None
        self._before = self._now()

    def begin(self, operator: Operator | None = None) -> None:
        self._operator = operator
        self._before = self._now()

    def spent(self, count: int) -> dict[str, float]:
        """Milliseconds for each of `count` replicas."""
        return {name: (seconds - self._before[name]) / count * 1000 for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        seconds = {"server": sum(_seconds(process) for process in self._server), "bench": time.process_time()}
        return seconds if self._operator is None else {**seconds, "operator": self._operator.cpu()}


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Figures:
    def __init__(self, text: str) -> None:
        samples = re.findall(r"^(\w+(?:\{[^}\n]*\})?) (\S+)$", text, re.M)
        self._values = {key: float(value) for key, value in samples}

    @property
    def leads(self) -> bool:
        return self._sum("leader_election_master_status") > 0

    @property
    def calls(self) -> float:
        return self._sum("rest_client_requests_total")

    @property
    def reconciles(self) -> float:
        return self._sum("controller_runtime_reconcile_total")

    def since(self, before: Figures) -> str:
        """Requests by method and answer."""
        requests = {
            re.sub(r'.*code="(\d+)",method="(\w+)".*', r"\2 \1", key): value - before._values.get(key, 0.0)
            for key, value in self._values.items()
            if key.startswith("rest_client_requests_total")
        }
        return ", ".join(f"{key}: {value:.0f}" for key, value in sorted(requests.items()))

    def reconcile_quantile(self, share: float) -> str:
        """The bucket in which this share of the reconciliations ended."""
        name = "controller_runtime_reconcile_time_seconds_bucket"
        buckets = sorted(
            (float(match.group(1).replace("+Inf", "inf")), value)
            for key, value in self._values.items()
            if (match := re.match(name + r'\{.*le="([^"]+)"', key))
        )
        total = buckets[-1][1]
        return f"≤ {next(limit for limit, count in buckets if count >= share * total) * 1000:g} ms"

    def _sum(self, name: str) -> float:
        return sum(value for key, value in self._values.items() if key.startswith(name))


async def until(condition: Callable[[], Any], description: str, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{description}: not within {seconds:.0f} s")
        await asyncio.sleep(0.05)
