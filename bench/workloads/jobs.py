"""Many PyTorchJobs at once, with pods that end as soon as they are bound: what the control plane alone can do.

The plane runs in this process, so that its reconciliations can be timed; the node is a loop that ends every pod.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import PyTorchJobController
from torchyard.controllers.scheduler import Scheduler
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.process import tune_garbage_collector
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

JOBS = GroupVersionResource("kubeflow.org", "v1", "pytorchjobs")
PODS = GroupVersionResource("", "v1", "pods")
NODES = GroupVersionResource("", "v1", "nodes", namespaced=False)
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
PARALLEL = 32


def job(name: str, workers: int) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "busybox"}]}}
    replicas = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": workers, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def node() -> Object:
    room = {"cpu": "100000", "memory": "1000Ti", "pods": "1000000"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "always"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake"}, "status": status}


class FakeNode:
    """Ends every pod that the scheduler gives it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: asyncio.Queue[Key] = asyncio.Queue()
        self._informer = Informer(client, PODS)
        self._informer.on_change(self._seen)

    def _seen(self, _change: str, pod: Object, before: Object | None) -> None:
        if pod["spec"].get("nodeName") and (before is None or not before["spec"].get("nodeName")):
            self._pods.put_nowait((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    async def run(self) -> None:
        await asyncio.gather(self._informer.run(), *(self._end() for _ in range(PARALLEL)))

    async def _end(self) -> None:
        while True:
            namespace, name = await self._pods.get()
            ended = {"status": {"phase": "Succeeded"}}
            await self._client.patch(PODS, name, ended, namespace, subresource="status")


class Clock:
    """When each job was made and when it had succeeded; how long each reconciliation took."""

    def __init__(self) -> None:
        self.made: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.reconciles: list[float] = []

    def seen(self, _change: str, obj: Object, _before: Object | None) -> None:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        if any(condition["type"] == "Succeeded" and condition["status"] == "True" for condition in conditions):
            self.ended.setdefault(obj["metadata"]["name"], time.perf_counter())

    async def all_ended(self, jobs: int) -> None:
        while True:
            if len(self.ended) == jobs:
                return
            await asyncio.sleep(0.05)

    def watch_reconciles(self) -> None:
        """From now on, of every controller that is made."""
        plain = PyTorchJobController._reconcile

        async def timed(controller: PyTorchJobController, key: Key) -> float | None:
            begun = time.perf_counter()
            try:
                return await plain(controller, key)
            finally:
                self.reconciles.append(time.perf_counter() - begun)

        PyTorchJobController._reconcile = timed


async def measure(jobs: int, workers: int) -> str:
    clock = Clock()
    clock.watch_reconciles()
    tune_garbage_collector()  # as the plane's own process does
    with tempfile.TemporaryDirectory() as directory:
        async with Plane(PlaneSettings(state=Path(directory), port=0, node=False)) as plane:
            client = plane.client("bench")
            await client.create(NODES, node())
            await _account(client)
            informers = InformerFactory(client)
            scheduler = Scheduler(
                client, informers, clock=plane.registry.clock
            )  # a plane has one only with its own node
            watched = Informer(client, JOBS)
            watched.on_change(clock.seen)
            parts = (watched.run(), FakeNode(client).run(), informers.run(), scheduler.run())
            tasks = [asyncio.ensure_future(part) for part in parts]
            begun = time.perf_counter()
            await _submit(client, jobs, workers, clock)
            await clock.all_ended(jobs)
            seconds = time.perf_counter() - begun
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    rss = psutil.Process().memory_info().rss / 1e6
    ages = [clock.ended[name] - clock.made[name] for name in clock.made]
    reconciles = [seconds * 1e3 for seconds in clock.reconciles]
    return ", ".join(
        (
            f"{jobs} jobs of {workers + 1} replicas: {jobs / seconds:.1f} jobs/s",
            f"{jobs * (workers + 1) / seconds:.0f} pods/s",
            f"{len(reconciles)} reconciles p50 {_share(reconciles, 50):.2f} ms p99 {_share(reconciles, 99):.1f} ms",
            f"job p50 {_share(ages, 50):.2f} s p99 {_share(ages, 99):.2f} s",
            f"RSS {rss:.0f} MB",
        )
    )


async def _account(client: Client) -> None:
    """Pods are refused until their namespace has its service account."""
    while True:
        if await client.find(ACCOUNTS, "default", "default") is not None:
            return
        await asyncio.sleep(0.05)


async def _submit(client: Client, jobs: int, workers: int, clock: Clock) -> None:
    names = iter(f"job-{number}" for number in range(jobs))

    async def submit() -> None:
        for name in names:
            clock.made[name] = time.perf_counter()
            await client.create(JOBS, job(name, workers), "default")

    await asyncio.gather(*(submit() for _ in range(PARALLEL)))


def _share(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else values[0]
