"""`python -m bench.queue arrivals|burst|latency`: workloads through the plane's queues, a line of figures per subject.

arrivals: 15,000 workloads with the arrival and run times of Kueue's scheduler test.
burst: all workloads are there at the start and end when they are admitted: how many per second.
latency: from created to admitted, one after the other, with free quota.

Everything goes through the HTTP API of a `yard up` in a process of its own: objects are created, admission is seen by a
watch, the end is written back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.queue.shapes import CLASSES, Load, cluster_queue, flavor, local_queue, workload
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOADS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load as connection
from torchyard.kube.process import prefer_uvloop

AT_ONCE = 24
WRITES = ("create", "update", "patch", "delete")


class Runner:
    """What Kueue's runner does: creates, watches, pretends to run, writes the end back."""

    def __init__(self, client: Client, *, runtimes: bool) -> None:
        self._client, self._runtimes = client, runtimes
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.created: dict[str, float] = {}
        self.admitted: dict[str, float] = {}
        self.finished: set[str] = set()
        self._runs: dict[str, asyncio.TimerHandle] = {}
        self.evictions = 0
        self.over = asyncio.Event()
        self.total = 0

    async def create(self, ref: GroupVersionResource, obj: Object) -> None:
        async with self._room:
            self.created[obj["metadata"]["name"]] = time.perf_counter()
            await self._client.create(ref, obj)

    async def open(self, queue: str) -> None:
        async with self._room:
            await self._client.patch(LOCAL_QUEUES, queue, {"spec": {"stopPolicy": "None"}}, "default")

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            raise SystemExit(f"the runner failed: {task.exception()!r}")

    async def watch(self, since: str) -> None:
        while True:  # a server ends the stream of whoever cannot follow
            async for change, obj in self._client.watch(WORKLOADS, "default", since=since):
                since = obj["metadata"]["resourceVersion"]
                if change in ("ADDED", "MODIFIED"):
                    self._see(obj)

    def _see(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        conditions = {one["type"]: one for one in (obj.get("status") or {}).get("conditions") or ()}
        if name in self.finished or conditions.get("Finished", {}).get("status") == "True":
            return
        if conditions.get("Evicted", {}).get("status") == "True":
            timer = self._runs.pop(name, None)
            if timer is not None:
                timer.cancel()
                self.evictions += 1
            return
        if conditions.get("Admitted", {}).get("status") != "True" or name in self._runs:
            return
        self.admitted.setdefault(name, time.perf_counter())
        one = next(each for each in CLASSES if each.name == obj["metadata"]["labels"]["class"])
        loop = asyncio.get_running_loop()
        delay = one.runtime if self._runtimes else 0.0
        self._runs[name] = loop.call_later(delay, lambda: self.spawn(self._finish(name, obj)))

    async def _finish(self, name: str, obj: Object) -> None:
        if name not in self._runs:
            return
        end = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "By test runner",
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        patch = {"status": {"conditions": [*obj["status"]["conditions"], end]}}
        async with self._room:
            await self._client.patch(WORKLOADS, name, patch, "default", subresource="status")
        self.finished.add(name)
        if len(self.finished) == self.total:
            self.over.set()


class Plane:
    """`yard up` in a process of its own."""

    def __init__(self, state: Path) -> None:
        self._state = state
        command = [sys.executable, "-m", "torchyard.cli", "up", "--state", str(state), "--port", "0", "--no-node"]
        command += ["--controllers", "kueue,namespace-controller,job-controller"]
        log = (state.parent / "yard.log").open("wb")
        self._process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))

    async def __aenter__(self) -> Plane:
        kubeconfig = self._state / "kubeconfig"
        while not kubeconfig.exists():
            if self._process.poll() is not None:
                raise SystemExit((self._state.parent / "yard.log").read_text())
            await asyncio.sleep(0.05)
        self._transport = HttpTransport(connection(kubeconfig), user_agent="bench")
        self.client = Client(self._transport, manager="bench")
        self.process = psutil.Process(self._process.pid)
        return self

    async def revision(self) -> str:
        """Of everything there is, without reading it."""
        found = await self.client.raw("GET", f"{WORKLOADS.path()}?limit=1")
        return str(found["metadata"]["resourceVersion"])

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        self._process.terminate()
        self._process.wait()

    async def figures(self) -> str:
        plane, own = self.process.cpu_times(), resource.getrusage(resource.RUSAGE_SELF)
        memory = self.process.memory_info().rss >> 20
        text = (await self._transport.request("GET", "/metrics")).body.decode()
        writes = Counter[str]()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "apiserver_request_total" and sample.labels["verb"] in WRITES:
                    kind = sample.labels["resource"] if sample.labels["code"] < "300" else "refused"
                    writes[kind] += int(sample.value)
        said = ", ".join(f"{count} {kind}" for kind, count in writes.most_common())
        return (
            f"plane {memory} MB, {plane.user + plane.system:.1f} s of CPU;"
            f" runner {own.ru_utime + own.ru_stime:.1f} s of CPU; writes: {said}"
        )


async def _prepare(runner: Runner, load: Load, *, held: bool) -> None:
    await runner.create(FLAVORS, flavor())
    await asyncio.gather(*(runner.create(CLUSTER_QUEUES, cluster_queue(*pair)) for pair in load.names))
    stop = {"stopPolicy": "Hold"} if held else {}
    await asyncio.gather(*(runner.create(LOCAL_QUEUES, local_queue(name, **stop)) for _, name in load.names))


async def arrivals(plane: Plane, load: Load) -> str:
    runner = Runner(plane.client, runtimes=True)
    await _prepare(runner, load, held=False)
    runner.total = load.total
    watch = asyncio.create_task(runner.watch(await plane.revision()))
    start = time.perf_counter()
    for at, one, queue, number in sorted(load.workloads(), key=lambda each: each[0]):
        ahead = start + at - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        runner.spawn(runner.create(WORKLOADS, workload(one, queue, number)))
    await runner.over.wait()
    wall = time.perf_counter() - start
    watch.cancel()
    means = []
    for one in CLASSES:
        waits = [at - runner.created[name] for name, at in runner.admitted.items() if f"-{one.name}-" in name]
        means.append(f"{one.name} {statistics.mean(waits):.1f} s")
    return (
        f"arrivals: {runner.total} workloads in {len(load.names)} queues: {wall:.1f} s, {runner.total / wall:.0f}/s;"
        f" to admission: {', '.join(means)}; {runner.evictions} preempted; {await plane.figures()}"
    )


async def burst(plane: Plane, load: Load) -> str:
    runner = Runner(plane.client, runtimes=False)
    await _prepare(runner, load, held=True)
    start = time.perf_counter()
    made = [runner.create(WORKLOADS, workload(one, queue, number)) for _, one, queue, number in load.workloads()]
    runner.total = len(made)
    await asyncio.gather(*made)
    created = time.perf_counter() - start
    watch = asyncio.create_task(runner.watch(await plane.revision()))
    start = time.perf_counter()
    for _, name in load.names:
        runner.spawn(runner.open(name))
    await runner.over.wait()
    wall = time.perf_counter() - start
    watch.cancel()
    return (
        f"burst: {runner.total} workloads in {len(load.names)} queues: created at {runner.total / created:.0f}/s,"
        f" admitted and finished in {wall:.1f} s, {runner.total / wall:.0f}/s; {runner.evictions} preempted;"
        f" {await plane.figures()}"
    )


async def latency(plane: Plane, load: Load) -> str:
    runner = Runner(plane.client, runtimes=False)
    await _prepare(runner, load, held=False)
    watch = asyncio.create_task(runner.watch(await plane.revision()))
    for number in range(300):
        runner.total = number + 1
        runner.over.clear()
        queue = load.names[number % len(load.names)][1]
        obj = workload(CLASSES[0], queue, number)
        await runner.create(WORKLOADS, obj)
        await runner.over.wait()
    watch.cancel()
    waits = sorted(at - runner.created[name] for name, at in runner.admitted.items())
    p50, p99 = waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000
    return f"latency: created to admitted, {len(load.names)} queues: p50 {p50:.1f} ms, p99 {p99:.1f} ms"


SUBJECTS = {"arrivals": arrivals, "burst": burst, "latency": latency}


async def _measure(arguments: argparse.Namespace) -> None:
    load = Load(arguments.cohorts, arguments.queues, arguments.per_queue)
    with tempfile.TemporaryDirectory() as directory:
        async with Plane(Path(directory) / "state") as plane:
            print(await SUBJECTS[arguments.subject](plane, load), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.queue", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--cohorts", type=int, default=5)
    parser.add_argument("--queues", type=int, default=6, help="queues per cohort")
    parser.add_argument("--per-queue", type=int, default=500, help="workloads per queue; a multiple of 10")
    prefer_uvloop()
    asyncio.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
