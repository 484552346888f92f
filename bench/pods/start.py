"""Pod created → its process running, exec latency, log throughput, memory per pod; on our node, and on another cluster.

`python bench/pods/start.py [--pods 100]` starts a plane of its own. `--kubeconfig FILE --image IMAGE` measures the same
pods on that cluster too (a kubelet), in the same run. One line of figures per subject.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil

from torchyard.core.pod.logs import LogOptions
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.refs import PODS
from torchyard.node.shutdown import stop_pods
from torchyard.node.streams import NodeStreams
from torchyard.yard.plane import Plane
from torchyard.yard.settings import Settings

Object = dict[str, Any]
# the process itself writes when it began: nothing in between can flatter the figure
STAMP = ["sh", "-c", "date +%s.%N; exec sleep 1000"]


def pod(name: str, image: str, command: list[str]) -> Object:
    container = {"name": "main", "image": image, "command": command, "imagePullPolicy": "IfNotPresent"}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Subject:
    """A place where pods run."""

    def __init__(self, client: Client, image: str, transport: HttpTransport | None = None) -> None:
        self.client, self.image, self._transport = client, image, transport

    async def log(self, found: Object) -> str:
        assert self._transport
        path = PODS.path("default", found["metadata"]["name"], "log")
        return (await self._transport.request("GET", path)).body.decode()

    async def run(self, count: int, prefix: str, *, together: int) -> list[float]:
        """Milliseconds from the request to the process, `together` pods at a time."""
        taken = []
        for start in range(0, count, together):
            names = [f"{prefix}-{number}" for number in range(start, min(start + together, count))]
            begun = time.time()
            for name in names:
                await self.client.create(PODS, pod(name, self.image, STAMP), "default")
            stamps = [await self._stamp(name) for name in names]
            taken += [(stamp - begun) * 1000 for stamp in ([max(stamps)] if together > 1 else stamps)]
        return taken

    async def _stamp(self, name: str) -> float:
        while True:
            found = await self.client.get(PODS, name, "default")
            if (found.get("status") or {}).get("phase") == "Running":
                # the line may be a moment behind the phase
                with contextlib.suppress(ValueError, IndexError):
                    return float((await self.log(found)).split()[0])
            await asyncio.sleep(0.01)

    async def remove(self, prefix: str, count: int) -> None:
        for number in range(count):
            await self.client.delete(PODS, f"{prefix}-{number}", "default", grace=0)


class Ours(Subject):
    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.client("bench"), "busybox")
        self.streams = NodeStreams(plane.settings.state / "node" / "pods")

    async def log(self, found: Object) -> str:
        pieces = [piece async for piece in self.streams.logs(found, "main", LogOptions())]
        return b"".join(pieces).decode()


def line(what: str, milliseconds: list[float]) -> None:
    ordered = sorted(milliseconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    mean, spread = statistics.mean(ordered), statistics.pstdev(ordered)
    middle = statistics.median(ordered)
    print(f"{what}: p50 {middle:.0f} ms, p99 {p99:.0f} ms, mean {mean:.0f} ± {spread:.0f} ms, n {len(ordered)}")


async def measure_start(subject: Subject, name: str, pods: int) -> float:
    await subject.run(2, "warm", together=1)
    alone = await subject.run(pods, "one", together=1)
    line(f"{name} one pod", alone)
    await subject.remove("one", pods)
    jobs = await subject.run(40, "job", together=4)
    line(f"{name} job of 4, all running", jobs)
    return statistics.median(alone)


async def measure_ours(plane: Plane, ours: Ours) -> None:
    await ours.run(20, "many", together=20)
    found = await ours.client.get(PODS, "many-0", "default")
    taken = []
    for _ in range(50):
        begun = time.perf_counter()
        process = await ours.streams.execute(found, "main", ["true"], stdin=False, stderr=True, tty=False)
        await process.wait()
        await process.close()
        taken.append((time.perf_counter() - begun) * 1000)
    line("torchyard exec", taken)
    megabytes = 200
    talk = ["sh", "-c", f"yes 0123456789012345678901234567890123456789 | head -c {megabytes}000000"]
    begun = time.time()
    await ours.client.create(PODS, pod("talker", "busybox", talk), "default")
    for _ in range(6000):
        if (await ours.client.get(PODS, "talker", "default")).get("status", {}).get("phase") == "Succeeded":
            break
        await asyncio.sleep(0.02)
    print(f"torchyard log: {megabytes / (time.time() - begun):.0f} MB/s through pipe, pump and file")
    homes = (plane.settings.state / "node" / "pods").iterdir()
    shims = [psutil.Process(int((home / "shim.lock").read_text())) for home in homes if (home / "shim.sock").exists()]
    shims = [one for one in shims if one.is_running()]
    resident = [one.memory_info().rss / 1e6 for one in shims]
    private = [one.memory_full_info().uss / 1e6 for one in shims]
    agent = psutil.Process(os.getpid()).memory_info().rss / 1e6
    rss, own = statistics.median(resident), statistics.median(private)
    print(f"torchyard memory: shim {rss:.1f} MB resident, {own:.1f} MB its own, n {len(shims)}; plane {agent:.0f} MB")


@contextlib.asynccontextmanager
async def our_plane() -> AsyncIterator[Plane]:
    state = Path(tempfile.mkdtemp(prefix="yard-bench-"))
    try:
        async with Plane(Settings(state=state, port=0, node=True, node_name="bench")) as plane:
            assert plane.agent
            await plane.agent.ready.wait()
            yield plane
    finally:
        await stop_pods(state / "node")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--image", default="busybox")
    arguments = parser.parse_args()
    async with our_plane() as plane:
        ours = Ours(plane)
        median = await measure_start(ours, "torchyard", arguments.pods)
        await measure_ours(plane, ours)
    if arguments.kubeconfig:
        transport = HttpTransport(kubeconfig.load(arguments.kubeconfig), user_agent="bench")
        theirs = Subject(Client(transport, manager="bench"), arguments.image, transport)
        other = await measure_start(theirs, "kubelet", min(arguments.pods, 30))
        await transport.close()
        print(f"ratio one pod, kubelet / torchyard: {other / median:.1f}")


asyncio.run(main())
