"""`python -m bench.operator`: many PyTorchJobs on kube-apiserver and etcd, beside a client that only creates objects.

First a few jobs whose pods a kubelet moves as they appear: how long a job takes to run and to end. Then the limit: a
client that makes the pods and services of `--jobs` jobs and decides nothing. Then the operator makes the same from as
many jobs; only after that the kubelet moves their pods, since the limit has none either. Last, the operator is started
again beside `--idle` finished jobs, and left alone. Needs the binaries of a real Kubernetes (KUBEBUILDER_ASSETS).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.kubernetes import Kubernetes, Server

from bench.operator.kubelet import Kubelet
from bench.operator.process import Operator, until
from bench.quantiles import quantile
from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client, Ref
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load
from torchyard.kube.process import prefer_uvloop
from torchyard.kube.refs import NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from torchyard.operator.install import install
from torchyard.operator.settings import MOST_REQUESTS, NAMESPACE

Object = dict[str, Any]
REPLICAS = 4
AT_ONCE = MOST_REQUESTS  # as many as the operator may
# Whoever makes jobs, and the kubelet, leave the operator its share of the 200 changes at once that the server takes.
OTHERS_AT_ONCE = 64
FEW = 100
HAND_OVERS = 3
IDLE_SECONDS = 20


def job(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "busybox", "args": ["--backend", "gloo"]}]}}
    replicas = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template},
        "Worker": {"replicas": REPLICAS - 1, "restartPolicy": "OnFailure", "template": template},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


async def namespace(client: Client, name: str) -> str:
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)  # no controller does it here
    return name


async def each(works: Iterable[Awaitable[Any]], at_once: int) -> None:
    """All of them, no more than `at_once` under way."""
    room = asyncio.Semaphore(at_once)

    async def one(work: Awaitable[Any]) -> None:
        async with room:
            await work

    await asyncio.gather(*(one(work) for work in works))


async def made(client: Client, space: str, count: int) -> None:
    """Until so many pods and services are there; asks for one of each and the number of the rest."""
    for ref in (PODS, SERVICES):
        while True:
            answer = await client.raw("GET", f"{ref.path(space)}?limit=1")
            if len(answer.get("items") or ()) + int(answer["metadata"].get("remainingItemCount") or 0) >= count:
                break
            await asyncio.sleep(0.05)


async def bare(client: Client, jobs: int, like: list[tuple[Ref, Object]]) -> float:
    """Replicas a second when nobody decides anything: the same pods and services, made anew."""
    space = await namespace(client, "bare")
    works = []
    for number in range(jobs):
        for ref, obj in like:
            metadata = {"name": f"b{number}-{obj['metadata']['name']}", "labels": obj["metadata"].get("labels") or {}}
            spec = {key: value for key, value in obj["spec"].items() if key not in ("clusterIPs", "nodeName")}
            works.append(client.create(ref, {"metadata": metadata, "spec": spec}, space))
    begun, cpu = time.perf_counter(), time.process_time()
    await each(works, AT_ONCE)
    rate = jobs * REPLICAS / (time.perf_counter() - begun)
    own = (time.process_time() - cpu) / jobs / REPLICAS * 1000
    print(
        f"limit: a client that only creates: {rate:.0f} replicas/s, {own:.1f} ms of its own CPU a replica", flush=True
    )
    return rate


class Run:
    """Jobs of one namespace: made, and then moved to their end by a kubelet."""

    def __init__(self, client: Client, operator: Operator, space: str, jobs: int) -> None:
        self._client, self._operator, self._space, self._jobs = client, operator, space, jobs
        self._kubelet = Kubelet(client, space, replicas=REPLICAS, at_once=OTHERS_AT_ONCE)
        self._created: dict[str, float] = {}

    async def make(self) -> float:
        """Replicas a second, from the first job's creation to the last pod's and service's."""
        begun, cpu = time.perf_counter(), self._operator.cpu()
        making = asyncio.ensure_future(self.create())
        await made(self._client, self._space, self._jobs * REPLICAS)
        rate = self._jobs * REPLICAS / (time.perf_counter() - begun)
        await making
        own = (self._operator.cpu() - cpu) / self._jobs / REPLICAS * 1000
        print(
            f"operator: {self._jobs} jobs x {REPLICAS}: {rate:.0f} replicas/s, {own:.1f} ms of its own CPU a replica",
            flush=True,
        )
        return rate

    async def create(self) -> None:
        """The jobs alone."""
        await each((self._create(f"job-{number}") for number in range(self._jobs)), OTHERS_AT_ONCE)

    async def finish(self, since: Callable[[str], float] | None = None) -> None:
        """Let the kubelet move the pods; `since` tells from when on a job's time counts, by default its creation."""
        since = since or self._created.__getitem__
        moving = asyncio.create_task(self._kubelet.run())
        await until(lambda: len(self._kubelet.reached["Succeeded"]) == self._jobs, "all jobs have succeeded")
        moving.cancel()
        for state, times in self._kubelet.reached.items():
            took = [at - since(name) for name, at in times.items()]
            print(f"  to {state}: p50 {quantile(took, 0.5):.2f} s, p99 {quantile(took, 0.99):.2f} s", flush=True)

    async def _create(self, name: str) -> None:
        await self._client.create(JOBS, job(name), self._space)
        self._created[name] = time.perf_counter()


async def one_leads(*copies: Operator) -> None:
    await until(lambda: any(one.figures().leads for one in copies), "one of them leads")


async def hand_over(client: Client, server: Server, directory: Path) -> None:
    """The leader is killed; how long until the other copy has made the first pod of a job."""
    space = await namespace(client, "hand-over")
    leader, other = (Operator(server.kubeconfig, directory / "operator.log") for _ in range(2))
    took = []
    for number in range(HAND_OVERS):
        await leader.ready()
        await other.ready()
        await one_leads(leader, other)
        if other.figures().leads:
            leader, other = other, leader
        leader.kill()
        killed = time.perf_counter()
        await client.create(JOBS, job(f"job-{number}"), space)
        await made(client, space, number * REPLICAS + 1)
        took.append(time.perf_counter() - killed)
        leader, other = other, Operator(server.kubeconfig, directory / "operator.log")
    leader.stop()
    other.stop()
    print(
        f"leader killed: the next one's first pod after {', '.join(f'{one:.1f}' for one in took)} s (goal ≤ 5)",
        flush=True,
    )


async def finished(client: Client, count: int) -> None:
    """Jobs that ended long ago, without pods."""
    space = await namespace(client, "finished")
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": kind,
            "message": kind,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        for kind, status in (("Created", "True"), ("Running", "False"), ("Succeeded", "True"))
    ]

    async def one(name: str) -> None:
        created = await client.create(JOBS, job(name), space)
        status = {"conditions": conditions, "startTime": now, "completionTime": now}
        await client.update(JOBS, {**created, "status": status}, subresource="status")

    await each((one(f"old-{number}") for number in range(count)), AT_ONCE)


async def measure(server: Server, directory: Path, jobs: int, idle: int) -> None:
    client = Client(HttpTransport(load(server.kubeconfig), user_agent="bench", limit=AT_ONCE + 8), manager="bench")
    await install(client, None, lambda _: None)
    await namespace(client, NAMESPACE)
    await hand_over(client, server, directory)
    operator = Operator(server.kubeconfig, directory / "operator.log")
    await operator.leads()
    print(f"{min(FEW, jobs)} jobs with a kubelet from the first moment on", flush=True)
    few = Run(client, operator, await namespace(client, "few"), min(FEW, jobs))
    await asyncio.gather(few.create(), few.finish())
    like = [
        (ref, one)
        for ref in (PODS, SERVICES)
        for one in (await client.list(ref, "few", labels=f"{names.JOB_NAME}=job-0")).items
    ]
    await operator.quiet()
    operator.stop()
    limit = await bare(client, jobs, like)
    operator = Operator(server.kubeconfig, directory / "operator.log")
    await operator.leads()
    before = operator.figures()
    print(f"{jobs} jobs whose pods are moved when all are made", flush=True)
    many = Run(client, operator, await namespace(client, "many"), jobs)
    rate = await many.make()
    print(f"  ratio to the limit: {rate / limit:.2f} (goal ≥ 0.9)", flush=True)
    moved = time.perf_counter()
    await many.finish(lambda _: moved)
    await operator.quiet()
    figures = operator.figures()
    calls = (figures.calls - before.calls) / jobs / REPLICAS
    print(f"  reconcile: p50 {figures.reconcile_quantile(0.5)}, p99 {figures.reconcile_quantile(0.99)}", end="; ")
    print(f"{(figures.reconciles - before.reconciles) / jobs:.1f} a job")
    print(f"  calls per replica over a job's life, events included: {calls:.1f} (goal ≤ 8): {figures.by_method()}")
    print(f"  RSS: {operator.rss():.0f} MB (goal ≤ 150 at 1,000 jobs)", flush=True)
    operator.stop()
    await finished(client, max(0, idle - jobs - min(FEW, jobs)))
    operator = Operator(server.kubeconfig, directory / "operator.log")
    await operator.leads()
    await operator.quiet()
    cpu = operator.cpu()
    await asyncio.sleep(IDLE_SECONDS)
    share = (operator.cpu() - cpu) / IDLE_SECONDS * 100
    print(
        f"idle beside {idle} finished jobs: {share:.2f} % of a core (goal < 1), RSS {operator.rss():.0f} MB", flush=True
    )
    operator.stop()
    await client.close()


def main() -> None:
    """Start the real server, run everything, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=5000, help="finished jobs, those of this run among them")
    given = parser.parse_args()
    prefer_uvloop()
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as name:
        directory = Path(os.environ.get("BENCH_KEEP") or name)
        with Kubernetes(directory / "kube", fsync=True) as server:
            asyncio.run(measure(server, directory, given.jobs, given.idle))


if __name__ == "__main__":
    main()
