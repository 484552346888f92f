"""What is measured: `yard up`, and Kueue on kube-apiserver and etcd, in processes of their own."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from prometheus_client.parser import text_string_to_metric_families
from tests.kueue.peers import kueue_manager
from tests.support.kubernetes import Kubernetes
from tests.support.process import Process

from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load

WRITES = ("create", "update", "patch", "delete")


class ProcessUsage(NamedTuple):
    name: str
    megabytes: int
    cpu_seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.megabytes} MB, {self.cpu_seconds:.1f} s of CPU"


class QueueServer:
    """An API server whose queues admit workloads."""

    def __init__(self, kubeconfig: Path, pids: dict[str, int], *, releases_quota: bool) -> None:
        """`pids`: its processes. `releases_quota`: whether it takes the quota of a workload without an owner back."""
        self._transport = HttpTransport(load(kubeconfig), user_agent="bench")
        self.client = Client(self._transport, manager="bench")
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self.releases_quota = releases_quota

    async def revision(self) -> str:
        """The current resource version."""
        workloads = await self.client.raw("GET", f"{WORKLOADS.path()}?limit=1")
        return str(workloads["metadata"]["resourceVersion"])

    def usage(self) -> list[ProcessUsage]:
        usages: list[ProcessUsage] = []
        for name, process in self._processes.items():
            times = process.cpu_times()
            usages.append(ProcessUsage(name, process.memory_info().rss >> 20, times.user + times.system))
        return usages

    async def writes(self) -> str:
        """How many writes the server accepted, by resource."""
        text = (await self._transport.request("GET", "/metrics")).body.decode()
        counts = Counter[str]()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "apiserver_request_total" and sample.labels["verb"].lower() in WRITES:
                    kind = sample.labels["resource"] if sample.labels["code"] < "300" else "rejected"
                    counts[kind] += int(sample.value)
        return ", ".join(f"{count} {kind}" for kind, count in counts.most_common(8))


@asynccontextmanager
async def plane(directory: Path) -> AsyncIterator[QueueServer]:
    state, log = directory / "state", directory / "yard.log"
    command = [sys.executable, "-m", "torchyard.cli", "up", "--state", str(state), "--port", "0", "--no-node"]
    command += ["--controllers", "kueue,namespace-controller,job-controller"]
    process = Process(command, log)
    try:
        await asyncio.to_thread(process.wait_until, (state / "kubeconfig").exists, "its kubeconfig")
        server = QueueServer(state / "kubeconfig", {"plane": process.pid}, releases_quota=True)
        yield server
        await server.client.close()
    finally:
        process.stop()


@asynccontextmanager
async def kueue(directory: Path) -> AsyncIterator[QueueServer]:
    """Kueue 0.19.1 without the limit of its client, on kube-apiserver and etcd as in production."""
    kubernetes = Kubernetes(directory / "kube", fsync=True)
    with kubernetes as control_plane, kueue_manager(control_plane, directory) as state:
        pids = {process.name: process.pid for process in kubernetes.processes}
        pids["kueue"] = int((state / "pid").read_text())
        server = QueueServer(control_plane.kubeconfig, pids, releases_quota=False)
        yield server
        await server.client.close()
