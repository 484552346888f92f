"""`python -m bench.operator`: many PyTorchJobs on kube-apiserver and etcd, beside a client that only creates objects.

Pods are moved by a kubelet that this program plays: Running when seen, Succeeded when all of a job run. Needs the
binaries of a real Kubernetes (KUBEBUILDER_ASSETS). `--jobs` says how many jobs; each has a Master and three Workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from tests.support.kubernetes import Kubernetes, Server
from tests.support.process import Process, free_port

from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client, Ref
from torchyard.kube.http import HttpTransport
from torchyard.kube.informers import Informers
from torchyard.kube.kubeconfig import load
from torchyard.kube.refs import NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from torchyard.operator.install import install
from torchyard.operator.settings import NAMESPACE

Object = dict[str, Any]
REPLICAS = 4
AT_ONCE = 64
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


async def each(works: list[Any]) -> None:
    """All of them, no more than AT_ONCE under way."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(work: Any) -> None:
        async with room:
            await work

    await asyncio.gather(*(one(work) for work in works))


async def bare(client: Client, jobs: int, like: list[tuple[Ref, Object]]) -> float:
    """Replicas a second when nobody decides anything: the same pods and services, made anew."""
    space = await namespace(client, "bare")
    works = []
    for number in range(jobs):
        for ref, obj in like:
            metadata = {"name": f"b{number}-{obj['metadata']['name']}", "labels": obj["metadata"].get("labels") or {}}
            spec = {key: value for key, value in obj["spec"].items() if key not in ("clusterIPs", "nodeName")}
            works.append(client.create(ref, {"metadata": metadata, "spec": spec}, space))
    begun = time.perf_counter()
    await each(works)
    return jobs * REPLICAS / (time.perf_counter() - begun)


class Kubelet:
    """Moves every pod to Running, and a job's pods to Succeeded once all of them run. Notes when what was reached."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._pods = informers.of(PODS, labels=f"{names.OPERATOR_NAME}={names.CONTROLLER}")
        self._services = informers.of(SERVICES, labels=f"{names.OPERATOR_NAME}={names.CONTROLLER}")
        self._jobs = informers.of(JOBS)
        self.made = Counter[str]()
        self.last_made = 0.0
        self.reached: dict[str, dict[str, float]] = {"Running": {}, "Succeeded": {}}
        self._running = Counter[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._pods.on_change(self._pod)
        self._services.on_change(lambda change, _obj, _before: self._count("service", change))
        self._jobs.on_change(self._job)

    def _count(self, what: str, change: str) -> None:
        if change == "ADDED":
            self.made[what] += 1
            self.last_made = time.perf_counter()

    def _pod(self, change: str, pod: Object, _: Object | None) -> None:
        self._count("pod", change)
        owner = pod["metadata"]["labels"][names.JOB_NAME]
        phase = (pod.get("status") or {}).get("phase")
        if change == "ADDED" and phase == "Pending":
            self._move(pod, "Running")
        elif change == "MODIFIED" and phase == "Running":
            self._running[owner] += 1
            if self._running[owner] == REPLICAS:
                for one in self._pods.all():
                    if one["metadata"]["labels"][names.JOB_NAME] == owner:
                        self._move(one, "Succeeded")

    def _move(self, pod: Object, phase: str) -> None:
        task = asyncio.get_running_loop().create_task(self._patch(pod["metadata"], {"status": {"phase": phase}}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _patch(self, metadata: Object, patch: Object) -> None:
        async with self._room:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")

    def _job(self, _change: str, found: Object, _: Object | None) -> None:
        for one in (found.get("status") or {}).get("conditions") or ():
            if one["status"] == "True" and one["type"] in self.reached:
                self.reached[one["type"]].setdefault(found["metadata"]["name"], time.perf_counter())


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def figures_of(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {key: float(value) for key, value in re.findall(r"^([a-z_]\S*(?: [^ ]*)?) ([0-9.e+-]+|\+Inf)$", text, re.M)}


def calls(figures: dict[str, float]) -> float:
    return sum(value for key, value in figures.items() if key.startswith("rest_client_requests_total"))


def reconcile_quantile(figures: dict[str, float], share: float) -> str:
    """The bucket in which this share of the reconciliations ended."""
    name = "controller_runtime_reconcile_time_seconds_bucket"
    buckets = sorted(
        (float(found.group(1).replace("+Inf", "inf")), value)
        for key, value in figures.items()
        if (found := re.match(name + r'\{.*le="([^"]+)"', key))
    )
    total = buckets[-1][1]
    return f"≤ {next(limit for limit, count in buckets if count >= share * total) * 1000:g} ms"


async def measure(server: Server, directory: Path, jobs: int) -> None:
    client = Client(HttpTransport(load(server.kubeconfig), user_agent="bench", limit=AT_ONCE), manager="bench")
    await install(client, None, lambda _: None)
    await namespace(client, NAMESPACE)
    space = await namespace(client, "jobs")
    metrics, health = free_port(), free_port()
    command = [
        sys.executable,
        "-m",
        "torchyard.cli",
        "operator",
        "--kubeconfig",
        str(server.kubeconfig),
        "--no-webhook",
    ]
    command += ["--host", "127.0.0.1", "--metrics-port", str(metrics), "--health-port", str(health)]
    operator = Process(command, directory / "operator.log", env={"PYTHONPATH": os.pathsep.join(sys.path)})
    informers = Informers(client, namespace=space)
    kubelet = Kubelet(client, informers)
    watching = asyncio.create_task(informers.run())
    await informers.synced()
    await _until(lambda: _answers(health), "the operator is ready")
    start_calls = calls(figures_of(metrics))
    begun = time.perf_counter()
    created: dict[str, float] = {}

    async def create(name: str) -> None:
        await client.create(JOBS, job(name), space)
        created[name] = time.perf_counter()

    await each([create(f"job-{number}") for number in range(jobs)])
    await _until(lambda: kubelet.made["pod"] == kubelet.made["service"] == jobs * REPLICAS, "all replicas are made")
    await _until(lambda: len(kubelet.reached["Succeeded"]) == jobs, "all jobs have succeeded")
    ended = time.perf_counter()
    await asyncio.sleep(2)  # its last events
    figures = figures_of(metrics)
    process = psutil.Process(operator.pid)
    rss = process.memory_info().rss / 1e6
    rate = jobs * REPLICAS / (kubelet.last_made - begun)
    print(f"operator: {jobs} jobs x {REPLICAS}: {rate:.0f} replicas/s made, all succeeded after {ended - begun:.1f} s")
    for state, times in kubelet.reached.items():
        took = [at - created[name] for name, at in times.items()]
        print(f"  to {state}: p50 {quantile(took, 0.5):.2f} s, p99 {quantile(took, 0.99):.2f} s")
    print(f"  reconcile: p50 {reconcile_quantile(figures, 0.5)}, p99 {reconcile_quantile(figures, 0.99)}")
    print(f"  calls per replica over a job's life: {(calls(figures) - start_calls) / jobs / REPLICAS:.1f} (goal ≤ 8)")
    print(f"  RSS: {rss:.0f} MB (goal ≤ 150 at 1,000 jobs)")
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(IDLE_SECONDS)
    idle = (sum(process.cpu_times()[:2]) - before) / IDLE_SECONDS * 100
    print(f"  idle with {jobs} finished jobs: {idle:.1f} % of a core (goal < 1 at 5,000)")
    like: list[tuple[Ref, Object]] = []
    for ref in (PODS, SERVICES):
        items = (await client.list(ref, space, labels=f"{names.JOB_NAME}=job-0")).items
        like += [(ref, one) for one in items]
    operator.stop()
    watching.cancel()
    limit = await bare(client, jobs, like)
    print(f"a client that only creates: {limit:.0f} replicas/s")
    print(f"ratio: {rate / limit:.2f} (goal ≥ 0.9)")
    await client.close()


async def _until(what: Any, said: str, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{said}: not within {seconds:.0f} s")
        await asyncio.sleep(0.05)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    """Start the real server, run both, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator")
    parser.add_argument("--jobs", type=int, default=1000)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as name:
        directory = Path(name)
        with Kubernetes(directory / "kube", fsync=True) as server:
            asyncio.run(measure(server, directory, jobs))


if __name__ == "__main__":
    main()
