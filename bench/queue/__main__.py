"""`python -m bench.queue arrivals|burst|latency|backlog`: runs workloads through the plane's queues.

arrivals: 15,000 workloads with the arrival and run times of Kueue's scheduler test.
burst: all workloads exist at the start and finish when they are admitted: how many per second.
latency: the time from creation to admission, one workload after the other, with free quota.
backlog: the time from the end of a workload to the next decision, with up to 50,000 pending ones; see `backlog`.

Except for `backlog`, everything goes through the HTTP API of a `yard up` in a separate process: it creates objects,
watches for admissions, and writes the Finished condition. `--peer` drives Kueue on a real API server with the same load
afterwards, and prints the ratios; it needs the binaries of a real Kubernetes and of Kueue.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bench.queue.backlog import run_backlog
from bench.queue.load import CLASSES, Arrival, Load, cluster_queue, flavor, local_queue, workload
from bench.queue.servers import ProcessUsage, QueueServer, kueue, plane
from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOADS
from torchyard.kube.client import Client
from torchyard.kube.process import prefer_uvloop

CONCURRENT_REQUESTS = 24
_CONFLICT = 409


class WorkloadRunner:
    """As the runner of Kueue's test: creates workloads, watches them, and finishes them after their run time."""

    def __init__(self, server: QueueServer, *, runtimes: bool) -> None:
        self._client: Client = server.client
        self._releases_quota, self._runtimes = not server.releases_quota, runtimes
        self._request_slots = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self.created: dict[str, float] = {}
        self.admitted: dict[str, float] = {}
        self.finished: set[str] = set()
        self._runs: dict[str, asyncio.TimerHandle] = {}
        self.evictions = 0
        self.finished_all = asyncio.Event()
        self.total = 0

    async def create(self, ref: GroupVersionResource, obj: Object) -> None:
        async with self._request_slots:
            self.created[obj["metadata"]["name"]] = time.perf_counter()
            await self._client.create(ref, obj)

    async def open(self, queue: str) -> None:
        async with self._request_slots:
            await self._client.patch(LOCAL_QUEUES, queue, {"spec": {"stopPolicy": "None"}}, "default")

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            raise SystemExit(f"runner failed: {task.exception()!r}")

    async def watch(self, since: str) -> None:
        while True:  # the server ends the stream of a watcher that is too slow
            async for change, obj in self._client.watch(WORKLOADS, "default", since=since):
                since = obj["metadata"]["resourceVersion"]
                if change in ("ADDED", "MODIFIED"):
                    self._workload_changed(obj)

    def _workload_changed(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        conditions = {condition["type"]: condition for condition in (obj.get("status") or {}).get("conditions") or ()}
        if name in self.finished or conditions.get("Finished", {}).get("status") == "True":
            return
        if conditions.get("Evicted", {}).get("status") == "True":
            timer = self._runs.pop(name, None)
            if timer is not None:
                timer.cancel()
                self.evictions += 1
                if self._releases_quota:
                    self.spawn(self._release(name, obj))
            return
        if conditions.get("Admitted", {}).get("status") != "True" or name in self._runs:
            return
        self.admitted.setdefault(name, time.perf_counter())
        workload_class = next(known for known in CLASSES if known.name == obj["metadata"]["labels"]["class"])
        loop = asyncio.get_running_loop()
        delay = workload_class.runtime if self._runtimes else 0.0
        self._runs[name] = loop.call_later(delay, lambda: self.spawn(self._finish(name, obj)))

    async def _release(self, name: str, obj: Object) -> None:
        """As the controller of its job does when all pods have stopped."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        released = {"status": "False", "reason": "Pending", "message": "By test runner", "lastTransitionTime": now}
        conditions = {condition["type"]: condition for condition in obj["status"]["conditions"]}
        conditions |= {kind: {"type": kind, **released} for kind in ("QuotaReserved", "Admitted")}
        newer = await self._patch_status(name, obj, {"conditions": list(conditions.values()), "admission": None})
        if newer is not None and has_true_condition(newer, "Evicted"):
            self.spawn(self._release(name, newer))

    async def _finish(self, name: str, obj: Object) -> None:
        if name not in self._runs:
            return
        finished = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "By test runner",
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        newer = await self._patch_status(name, obj, {"conditions": [*obj["status"]["conditions"], finished]})
        if newer is not None:
            if has_true_condition(newer, "Admitted") and not has_true_condition(newer, "Evicted"):
                self.spawn(self._finish(name, newer))
            return  # preempted meanwhile: it finishes when it is admitted again
        self.finished.add(name)
        if len(self.finished) == self.total:
            self.finished_all.set()

    async def _patch_status(self, name: str, obj: Object, status: Object) -> Object | None:
        """Patch the status of a workload, unless it has changed: then return it as it is now."""
        patch = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": status}
        async with self._request_slots:
            try:
                await self._client.patch(WORKLOADS, name, patch, "default", subresource="status")
            except StatusError as error:
                if error.status != _CONFLICT:
                    raise
                return await self._client.get(WORKLOADS, name, "default")
        return None


class Result(NamedTuple):
    time: float  # seconds of all workloads, or milliseconds of one with `latency`
    text: str
    usages: list[ProcessUsage]

    @property
    def megabytes(self) -> int:
        return sum(usage.megabytes for usage in self.usages)

    @property
    def cpu_seconds(self) -> float:
        return sum(usage.cpu_seconds for usage in self.usages)


_Start = Callable[[Path], AbstractAsyncContextManager[QueueServer]]


async def _prepare(runner: WorkloadRunner, load: Load, *, held: bool) -> None:
    await runner.create(FLAVORS, flavor())
    await asyncio.gather(*(runner.create(CLUSTER_QUEUES, cluster_queue(*pair)) for pair in load.names))
    stop = {"stopPolicy": "Hold"} if held else {}
    await asyncio.gather(*(runner.create(LOCAL_QUEUES, local_queue(name, **stop)) for _, name in load.names))


async def arrivals(server: QueueServer, load: Load) -> Result:
    runner = WorkloadRunner(server, runtimes=True)
    await _prepare(runner, load, held=False)
    runner.total = load.total
    watch = asyncio.create_task(runner.watch(await server.revision()))
    start = time.perf_counter()
    for arrival in sorted(load.workloads(), key=lambda arrival: arrival.at):
        delay = start + arrival.at - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        runner.spawn(runner.create(WORKLOADS, workload(arrival)))
    await runner.finished_all.wait()
    wall = time.perf_counter() - start
    watch.cancel()
    means = []
    for workload_class in CLASSES:
        infix = f"-{workload_class.name}-"
        waits = [at - runner.created[name] for name, at in runner.admitted.items() if infix in name]
        means.append(f"{workload_class.name} {statistics.mean(waits):.1f} s")
    text = (
        f"arrivals: {runner.total} workloads in {len(load.names)} queues: {wall:.1f} s, {runner.total / wall:.0f}/s;"
        f" to admission: {', '.join(means)}; {runner.evictions} preempted"
    )
    return Result(wall, text, server.usage())


async def burst(server: QueueServer, load: Load) -> Result:
    runner = WorkloadRunner(server, runtimes=False)
    await _prepare(runner, load, held=True)
    start = time.perf_counter()
    creates = [runner.create(WORKLOADS, workload(arrival)) for arrival in load.workloads()]
    runner.total = len(creates)
    await asyncio.gather(*creates)
    created = time.perf_counter() - start
    watch = asyncio.create_task(runner.watch(await server.revision()))
    start = time.perf_counter()
    for _, name in load.names:
        runner.spawn(runner.open(name))
    await runner.finished_all.wait()
    wall = time.perf_counter() - start
    watch.cancel()
    text = (
        f"burst: {runner.total} workloads in {len(load.names)} queues: created at {runner.total / created:.0f}/s,"
        f" admitted and finished in {wall:.1f} s, {runner.total / wall:.0f}/s; {runner.evictions} preempted"
    )
    return Result(wall, text, server.usage())


async def latency(server: QueueServer, load: Load) -> Result:
    runner = WorkloadRunner(server, runtimes=False)
    await _prepare(runner, load, held=False)
    watch = asyncio.create_task(runner.watch(await server.revision()))
    for number in range(300):
        runner.total = number + 1
        runner.finished_all.clear()
        queue = load.names[number % len(load.names)][1]
        obj = workload(Arrival(0.0, CLASSES[0], queue, number))
        await runner.create(WORKLOADS, obj)
        await runner.finished_all.wait()
    watch.cancel()
    waits = sorted(at - runner.created[name] for name, at in runner.admitted.items())
    p50, p99 = waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000
    text = f"latency: created to admitted, {len(load.names)} queues: p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    return Result(p50, text, server.usage())


BENCHMARKS = {"arrivals": arrivals, "burst": burst, "latency": latency}


async def _measure(arguments: argparse.Namespace, start: _Start) -> Result:
    load = Load(arguments.cohorts, arguments.queues, arguments.per_queue)
    with tempfile.TemporaryDirectory() as directory:
        async with start(Path(directory)) as server:
            before = resource.getrusage(resource.RUSAGE_SELF)
            result: Result = await BENCHMARKS[arguments.benchmark](server, load)
            after = resource.getrusage(resource.RUSAGE_SELF)
            runner = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            usages = "; ".join(map(str, result.usages))
            print(f"{result.text}; {usages}; runner {runner:.1f} s of CPU; writes: {await server.writes()}", flush=True)
    return result


async def _compare(arguments: argparse.Namespace) -> None:
    ours, theirs = await _measure(arguments, plane), await _measure(arguments, kueue)
    memory, cpu = ours.megabytes / theirs.megabytes, ours.cpu_seconds / theirs.cpu_seconds
    print(f"plane to Kueue with its API server: time {ours.time / theirs.time:.2f}, memory {memory:.2f}, CPU {cpu:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.queue", description=__doc__)
    parser.add_argument("benchmark", choices=[*BENCHMARKS, "backlog"])
    parser.add_argument("--cohorts", type=int, default=5)
    parser.add_argument("--queues", type=int, default=6, help="queues per cohort")
    parser.add_argument("--per-queue", type=int, default=500, help="workloads per queue; a multiple of 10")
    parser.add_argument("--backlogs", type=int, nargs="+", default=[1_000, 10_000, 50_000], help="pending workloads")
    parser.add_argument("--queues-of-backlog", type=int, default=200, help="ClusterQueues of backlog")
    parser.add_argument("--fair", action="store_true", help="with fair sharing; only for backlog")
    parser.add_argument("--preempt", action="store_true", help="with preemption in cohorts; only for backlog")
    parser.add_argument("--peer", action="store_true", help="Kueue with the same load, too; not for backlog")
    arguments = parser.parse_args()
    if arguments.benchmark == "backlog":
        run_backlog(
            tuple(arguments.backlogs), arguments.queues_of_backlog, is_fair=arguments.fair, preempts=arguments.preempt
        )
        return
    prefer_uvloop()
    asyncio.run(_compare(arguments) if arguments.peer else _measure(arguments, plane))


if __name__ == "__main__":
    main()
