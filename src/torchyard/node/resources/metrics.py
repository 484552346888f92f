"""What `kubectl top` shows: the usage of the node and its pods, as metrics.k8s.io objects."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.api.usage_names import GPU_MEMORY, GPUS
from torchyard.node.devices.utilization import DeviceUse, UtilizationReader
from torchyard.node.resources.usage import UsageSampler
from torchyard.node.shim import records
from torchyard.node.threads import in_thread

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord

_SAMPLE_SECONDS = 5.0
_FRESH_SECONDS = 0.5


class ResourceMetrics:
    """Samples periodically while it runs, and again when a request finds the last sample too old."""

    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._sampler = UsageSampler()
        self._gpus = UtilizationReader()
        self._gpu_use: dict[str, DeviceUse] = {}
        self._owners: dict[str, tuple[PodRecord, str]] = {}
        self._cpu_times: list[tuple[float, float]] = []
        self._last = 0.0

    async def run(self) -> None:
        while True:
            await in_thread(self.sample)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def sample(self) -> None:
        leaders: dict[str, int] = {}
        owners: dict[str, tuple[PodRecord, str]] = {}
        for pod_dir in self._pods.iterdir():
            pod_record = records.read_pod(str(pod_dir))
            if not pod_record:
                continue
            for name, attempts in records.read_all(str(pod_dir)).items():
                if attempts and attempts[-1]["state"] == records.RUNNING:
                    key = f"{pod_dir.name}/{name}"
                    leaders[key] = attempts[-1]["pid"]
                    owners[key] = (pod_record, name)
        self._sampler.take(leaders)
        self._owners = owners
        self._gpu_use = self._gpus.read(uuid for owner in owners.values() for uuid in _devices(*owner))
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        self._cpu_times = [*self._cpu_times[-1:], (time.monotonic(), sum(times) - idle)]
        self._last = time.monotonic()

    def pods(self) -> list[Object]:
        """PodMetrics of every pod with a running container."""
        if time.monotonic() - self._last > _SAMPLE_SECONDS + _FRESH_SECONDS:
            self.sample()
        by_pod: dict[str, Object] = {}
        for key, (pod_record, name) in self._owners.items():
            item = by_pod.setdefault(
                pod_record["uid"],
                {
                    "metadata": {
                        "name": pod_record["name"],
                        "namespace": pod_record["namespace"],
                        "creationTimestamp": _now(),
                    },
                    "timestamp": _now(),
                    "window": _window(self._sampler.window),
                    "containers": [],
                },
            )
            usage = {"cpu": f"{int(self._sampler.cpu(key) * 1e9)}n", "memory": f"{self._sampler.memory(key) >> 10}Ki"}
            item["containers"].append({"name": name, "usage": {**usage, **self._gpu_usage(pod_record, name)}})
        return list(by_pod.values())

    def _gpu_usage(self, record: PodRecord, container: str) -> dict[str, str]:
        """How many of its GPUs a container keeps busy, and their memory; nothing if the driver does not say."""
        use = [self._gpu_use.get(uuid) for uuid in _devices(record, container)]
        busy = [each.busy for each in use if each is not None and each.busy is not None]
        memory = [each.memory for each in use if each is not None and each.memory is not None]
        usage = {}
        if use and len(busy) == len(use):
            usage[GPUS] = f"{round(sum(busy) * 1000)}m"
        if use and len(memory) == len(use):
            usage[GPU_MEMORY] = f"{sum(memory) >> 10}Ki"
        return usage

    def node(self, name: str) -> Object:
        cores = 0.0
        if len(self._cpu_times) == 2:
            (before, used_before), (now, used) = self._cpu_times
            cores = max(0.0, (used - used_before) / (now - before)) if now > before else 0.0
        memory = psutil.virtual_memory()
        return {
            "metadata": {"name": name, "creationTimestamp": _now()},
            "timestamp": _now(),
            "window": _window(_SAMPLE_SECONDS),
            "usage": {"cpu": f"{int(cores * 1e9)}n", "memory": f"{(memory.total - memory.available) >> 10}Ki"},
        }


def _devices(record: PodRecord, container: str) -> list[str]:
    return (record.get("devices") or {}).get(container, [])


def _window(seconds: float) -> str:
    return f"{max(seconds, 1.0):.3f}s"


def _now() -> str:
    return to_rfc3339(datetime.now(UTC))
