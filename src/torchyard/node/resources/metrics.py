"""What `kubectl top` shows: real usage of nodes and pods, as metrics.k8s.io objects."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.node.resources.usage import UsageSampler
from torchyard.node.shim import records

_SECONDS = 5.0
_FRESH_SECONDS = 0.5


class ResourceMetrics:
    """Samples on its own while it runs, and again when asked for figures."""

    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._meter = UsageSampler()
        self._owners: dict[str, tuple[Object, str]] = {}
        self._cpu_times: list[tuple[float, float]] = []
        self._last = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.take)
            await asyncio.sleep(_SECONDS)

    def take(self) -> None:
        leaders: dict[str, int] = {}
        owners: dict[str, tuple[Object, str]] = {}
        for pod_dir in self._pods.iterdir():
            plan = records.read(str(pod_dir / "pod.json"))
            if not plan:
                continue
            for name, attempts in records.read_all(str(pod_dir)).items():
                if attempts and attempts[-1]["state"] == records.RUNNING:
                    key = f"{pod_dir.name}/{name}"
                    leaders[key] = attempts[-1]["pid"]
                    owners[key] = (plan, name)
        self._meter.take(leaders)
        self._owners = owners
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        self._cpu_times = [*self._cpu_times[-1:], (time.monotonic(), sum(times) - idle)]
        self._last = time.monotonic()

    def pods(self) -> list[Object]:
        """PodMetrics of every pod with a running container."""
        if time.monotonic() - self._last > _SECONDS + _FRESH_SECONDS:
            self.take()
        by_pod: dict[str, Object] = {}
        for key, (plan, name) in self._owners.items():
            item = by_pod.setdefault(
                plan["uid"],
                {
                    "metadata": {"name": plan["name"], "namespace": plan["namespace"], "creationTimestamp": _now()},
                    "timestamp": _now(),
                    "window": _window(self._meter.window),
                    "containers": [],
                },
            )
            usage = {"cpu": f"{int(self._meter.cpu(key) * 1e9)}n", "memory": f"{self._meter.memory(key) >> 10}Ki"}
            item["containers"].append({"name": name, "usage": usage})
        return list(by_pod.values())

    def node(self, name: str) -> Object:
        cores = 0.0
        if len(self._cpu_times) == 2:
            (before, used_before), (now, used) = self._cpu_times
            cores = max(0.0, (used - used_before) / (now - before)) if now > before else 0.0
        memory = psutil.virtual_memory()
        return {
            "metadata": {"name": name, "creationTimestamp": _now()},
            "timestamp": _now(),
            "window": _window(_SECONDS),
            "usage": {"cpu": f"{int(cores * 1e9)}n", "memory": f"{(memory.total - memory.available) >> 10}Ki"},
        }


def _window(seconds: float) -> str:
    return f"{max(seconds, 1.0):.3f}s"


def _now() -> str:
    return to_rfc3339(datetime.now(UTC))
