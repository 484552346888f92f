"""`python -m bench.operator`: many PyTorchJobs on kube-apiserver and etcd, beside a client that only creates objects.

First a few jobs whose pods a kubelet moves as they appear: how long a job takes to run and to end. Then the limit (see
`limit`): a client that makes `--jobs` jobs, their pods and services, and decides nothing; and what it does without the
jobs. Then the operator makes pods and services of as many jobs while these are made; only after that the kubelet moves
their pods, since the limit has none either. Limit and operator take turns, since a machine is not always as fast: the
ratio is that of their means. Then the operator is started beside as many jobs that nobody has looked at, so that only
pods, services and statuses are written, and is compared with the client that creates pods and services alone. Last,
the operator is started again beside `--idle` finished jobs, and left alone.
Needs the binaries of a real Kubernetes (KUBEBUILDER_ASSETS).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import fmean

from tests.support.kubernetes import Kubernetes, Server

from bench.operator.kubelet import Kubelet
from bench.operator.limit import AT_ONCE, OTHERS_AT_ONCE, Limit, run_all, wait_until_created
from bench.operator.process import Cores, Operator, until
from bench.quantiles import quantile
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load
from torchyard.kube.process import prefer_uvloop
from torchyard.operator.install import install
from torchyard.operator.settings import NAMESPACE

REPLICAS = 4
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


class Run:
    """Jobs of one namespace: made, and then moved to their end by a kubelet."""

    def __init__(self, client: Client, space: str, jobs: int) -> None:
        self._client, self._space, self._jobs = client, space, jobs
        self._kubelet = Kubelet(client, space, replicas=REPLICAS, at_once=OTHERS_AT_ONCE)
        self._created: dict[str, float] = {}

    async def make(self) -> float:
        """Replicas a second, from the first job's creation to the last pod's and service's."""
        return await self._rate(self.create())

    async def created(self) -> float:
        """The same for jobs that exist, from now on."""
        return await self._rate()

    async def _rate(self, *works: Awaitable[None]) -> float:
        begun = time.perf_counter()
        await asyncio.gather(*works, wait_until_created(self._client, self._space, self._jobs * REPLICAS))
        return self._jobs * REPLICAS / (time.perf_counter() - begun)

    async def create(self) -> None:
        """The jobs alone."""
        await run_all((self._create(f"job-{number}") for number in range(self._jobs)), OTHERS_AT_ONCE)

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


def cpu_text(spent: dict[str, float]) -> str:
    return "CPU " + ", ".join(f"{name} {milliseconds:.2f} ms" for name, milliseconds in spent.items()) + " each"


async def one_leads(*copies: Operator) -> None:
    await until(lambda: any(copy.figures().leads for copy in copies), "one of them leads")


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
        await wait_until_created(client, space, number * REPLICAS + 1)
        took.append(time.perf_counter() - killed)
        leader, other = other, Operator(server.kubeconfig, directory / "operator.log")
    leader.stop()
    other.stop()
    print(
        f"leader killed: the next one's first pod after {', '.join(f'{seconds:.1f}' for seconds in took)} s (goal ≤ 5)",
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

    async def create(name: str) -> None:
        created = await client.create(JOBS, job(name), space)
        status = {"conditions": conditions, "startTime": now, "completionTime": now}
        await client.update(JOBS, {**created, "status": status}, subresource="status")

    await run_all((create(f"old-{number}") for number in range(count)), AT_ONCE)


class Measure:
    """All of it, one after the other; `server` was started by `cluster`."""

    def __init__(self, server: Server, cluster: Kubernetes, directory: Path) -> None:
        self._server, self._log = server, directory / "operator.log"
        self.connection = load(server.kubeconfig)
        self.client = Client(HttpTransport(self.connection, user_agent="bench", limit=AT_ONCE + 8), manager="bench")
        self._cores = Cores([item.pid for item in cluster.processes])
        self._limits = 0
        # Milliseconds of all processes for each replica, of each run.
        self.limit_cpu: list[float] = []
        self.alone_cpu: list[float] = []
        self.operator_cpu: list[float] = []

    async def few(self, jobs: int) -> list[tuple[GroupVersionResource, Object]]:
        """Answers with what the operator made of the first of them."""
        operator = await self._started()
        print(f"{jobs} jobs with a kubelet from the first moment on", flush=True)
        few = Run(self.client, await namespace(self.client, "few"), jobs)
        await asyncio.gather(few.create(), few.finish())
        await operator.quiet()
        operator.stop()
        labels = f"{names.JOB_NAME}=job-0"
        return [
            (ref, item)
            for ref in (PODS, SERVICES)
            for item in (await self.client.list(ref, "few", labels=labels)).items
        ]

    async def limit(self, limit: Limit, jobs: int, *, beside: bool, share: int = 1) -> float:
        self._limits += 1
        space = await namespace(self.client, f"limit-{self._limits}")
        self._cores.begin()
        rate = await limit.rate(space, job if beside else None, share=share)
        subject = "the jobs, their pods and services" if beside else "pods and services alone"
        at_once = f"{AT_ONCE // share} at once"
        spent = self._cores.spent(jobs * REPLICAS)
        print(f"limit, {subject}, {at_once}: {rate:.0f} replicas/s; {cpu_text(spent)}", flush=True)
        (self.limit_cpu if beside else self.alone_cpu).append(sum(spent.values()))
        return rate

    async def many(self, jobs: int) -> float:
        """The rate at which all is made; then they are moved to their end."""
        operator = await self._started()
        before = operator.figures()
        many = Run(self.client, await namespace(self.client, "many"), jobs)
        rate = await self._make(many, operator, jobs)
        print(f"  so far {operator.figures().since(before)}", flush=True)
        moved = time.perf_counter()
        await many.finish(lambda _: moved)
        await operator.quiet()
        figures = operator.figures()
        calls = (figures.calls - before.calls) / jobs / REPLICAS
        print(f"  reconcile: p50 {figures.reconcile_quantile(0.5)}, p99 {figures.reconcile_quantile(0.99)}", end="; ")
        print(f"{(figures.reconciles - before.reconciles) / jobs:.1f} a job")
        print(
            f"  calls per replica over a job's life, events included: {calls:.1f} (goal ≤ 8): {figures.since(before)}"
        )
        print(f"  RSS: {operator.rss():.0f} MB (goal ≤ 150 at 1,000 jobs)", flush=True)
        operator.stop()
        return rate

    async def again(self, jobs: int) -> float:
        """Only the rate, and nothing of it stays."""
        operator, space = await self._started(), await namespace(self.client, "again")
        rate = await self._make(Run(self.client, space, jobs), operator, jobs)
        operator.stop()
        await self._remove(space)
        return rate

    async def existing(self, jobs: int) -> tuple[float, float]:
        """The rate, and the CPU of all processes for each replica, of an operator that starts beside existing jobs."""
        space = await namespace(self.client, "existing")
        run = Run(self.client, space, jobs)
        await run.create()
        operator = await self._started()
        self._cores.begin(operator)
        rate = await run.created()
        spent = self._cores.spent(jobs * REPLICAS)
        print(f"operator: {jobs} jobs x {REPLICAS} that existed: {rate:.0f} replicas/s; {cpu_text(spent)}", flush=True)
        operator.stop()
        await self._remove(space)
        return rate, sum(spent.values())

    async def _remove(self, space: str) -> None:
        for ref in (JOBS, PODS, SERVICES):
            await self.client.raw("DELETE", ref.path(space))

    async def _make(self, run: Run, operator: Operator, jobs: int) -> float:
        self._cores.begin(operator)
        rate = await run.make()
        spent = self._cores.spent(jobs * REPLICAS)
        print(f"operator: {jobs} jobs x {REPLICAS}: {rate:.0f} replicas/s; {cpu_text(spent)}", flush=True)
        self.operator_cpu.append(sum(spent.values()))
        return rate

    async def growth(self, jobs: int, others: int) -> None:
        """What the operator spends on some jobs, at first and beside many others, whose pods wait."""
        operator = await self._started()
        each = []
        for space, count in (("first", jobs), ("others", others), ("last", jobs)):
            run = Run(self.client, await namespace(self.client, space), count)
            before = operator.cpu()
            rate = await run.make()
            await operator.quiet()
            each.append((operator.cpu() - before) / count / REPLICAS * 1000)
            print(
                f"{space}: {count} jobs x {REPLICAS}: {rate:.0f} replicas/s; operator {each[-1]:.2f} ms of CPU each, "
                f"RSS {operator.rss():.0f} MB",
                flush=True,
            )
        print(f"CPU per replica beside {others} jobs: {each[-1] / each[0]:.2f} of that beside none", flush=True)
        operator.stop()

    async def idle(self, jobs: int, others: int) -> None:
        await finished(self.client, max(0, jobs - others))
        operator = await self._started()
        await operator.quiet()
        cpu = operator.cpu()
        await asyncio.sleep(IDLE_SECONDS)
        share = (operator.cpu() - cpu) / IDLE_SECONDS * 100
        rss = f"{operator.rss():.0f} MB"
        print(f"idle beside {jobs} finished jobs: {share:.2f} % of a core (goal < 1), RSS {rss}", flush=True)
        operator.stop()

    async def _started(self) -> Operator:
        operator = Operator(self._server.kubeconfig, self._log)
        await operator.leads()
        return operator


async def measure(server: Server, cluster: Kubernetes, directory: Path, *, jobs: int, idle: int, growth: int) -> None:
    it = Measure(server, cluster, directory)
    await install(it.client, None, lambda _: None)
    await namespace(it.client, NAMESPACE)
    if growth:
        await it.growth(jobs, growth)
        await it.client.close()
        return
    await hand_over(it.client, server, directory)
    few = min(FEW, jobs)
    limit = Limit(it.connection, await it.few(few), jobs)
    alone = await it.limit(limit, jobs, beside=False)
    all_at_once, fewer = [await it.limit(limit, jobs, beside=True)], [await it.limit(limit, jobs, beside=True, share=3)]
    rates = [await it.many(jobs)]
    fewer.append(await it.limit(limit, jobs, beside=True, share=3))
    rates.append(await it.again(jobs))
    all_at_once.append(await it.limit(limit, jobs, beside=True))
    rate, best = fmean(rates), max(fmean(all_at_once), fmean(fewer))
    print(f"ratio to the limit: {rate / best:.2f} (goal ≥ 0.9)", end="; ")
    print(f"to pods and services alone: {rate / alone:.2f}", flush=True)
    existing_rate, existing_cpu = await it.existing(jobs)
    alone = fmean([alone, await it.limit(limit, jobs, beside=False)])
    print(
        f"existing jobs: ratio to pods and services alone {existing_rate / alone:.2f} (goal ≥ 0.9), "
        f"of the CPU of all processes {fmean(it.alone_cpu) / existing_cpu:.2f}",
        flush=True,
    )
    limit_cpu, operator_cpu = fmean(it.limit_cpu), fmean(it.operator_cpu)
    print(
        f"ratio of the CPU of all processes, for a machine that others use: {limit_cpu / operator_cpu:.2f}", flush=True
    )
    await it.idle(idle, jobs + few)
    await it.client.close()


def main() -> None:
    """Start the real server, run everything, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=5000, help="finished jobs, those of this run among them")
    parser.add_argument("--growth", type=int, default=0, help="only the CPU per job beside so many other jobs")
    arguments = parser.parse_args()
    prefer_uvloop()
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as name:
        directory = Path(os.environ.get("BENCH_KEEP") or name)
        cluster = Kubernetes(directory / "kube", fsync=True)
        with cluster as server:
            asyncio.run(
                measure(
                    server,
                    cluster,
                    directory,
                    jobs=arguments.jobs,
                    idle=arguments.idle,
                    growth=arguments.growth,
                )
            )


if __name__ == "__main__":
    main()
