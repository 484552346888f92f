"""`python -m bench.trainjob --peers DIR`: 500 TrainJobs of four nodes on a real Kubernetes, ours beside upstream's.

Every run has a server of its own: kube-apiserver, etcd with fsync and kube-controller-manager, which creates the pods
of the Jobs. A run lasts from the creation of the first TrainJob until all pods exist; nothing runs them. Our
operator and upstream's JobSet and Trainer managers, whose client limits are lifted (`--qps 5000`), take turns: a
machine is not always as fast. The ratio is that of the means. DIR has upstream's programs and the command `start` that
installs and starts them; without it only the operator is measured. Needs the binaries of a real Kubernetes
(KUBEBUILDER_ASSETS), kube-controller-manager among them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import psutil
from tests.support.kubernetes import Kubernetes, Server

from bench.operator.limit import run_all
from bench.trainjob.managers import Managers, Ours, Upstream
from torchyard.api.errors import StatusError
from torchyard.api.gvr import NAMESPACES, PODS
from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.controllers.trainjob import TRAINJOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load
from torchyard.kube.process import prefer_uvloop

NODES, AT_ONCE = 4, 32
SPACE = "train"
RUNTIME = "torch-distributed"
PATIENCE = 600.0
_LOOK_AGAIN = 0.1


@dataclass(frozen=True)
class Result:
    """One run: pods a second, the peak of the managers' memory in MB, and their CPU seconds."""

    rate: float
    memory: float
    cpu: float


def train_job(name: str) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": RUNTIME},
            "trainer": {"numNodes": NODES, "image": "busybox", "command": ["torchrun", "train.py"]},
        },
    }


class Measure:
    """One run with one kind of managers."""

    def __init__(self, server: Server, managers: Managers, directory: Path, jobs: int) -> None:
        self._server, self._managers, self._directory, self._jobs = server, managers, directory, jobs
        self._client = Client(
            HttpTransport(load(server.kubeconfig), user_agent="bench", limit=AT_ONCE + 8), manager="bench"
        )
        self._peak = 0.0

    async def run(self) -> Result:
        await self._managers.start(self._client, self._server, self._directory)
        await self._client.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await self._warm_up()
        processes = self._managers.processes()
        sampling = asyncio.create_task(self._sample(processes))
        before, begun = _cpu(processes), time.perf_counter()
        await asyncio.gather(
            run_all((self._create(f"job-{number}") for number in range(self._jobs)), AT_ONCE),
            self._pods_exist(self._jobs * NODES),
        )
        rate = self._jobs * NODES / (time.perf_counter() - begun)
        sampling.cancel()
        result = Result(rate, self._peak, _cpu(processes) - before)
        await self._client.close()
        self._managers.stop()
        return result

    async def _create(self, name: str) -> None:
        await self._client.create(TRAINJOBS, train_job(name), SPACE)

    async def _warm_up(self) -> None:
        """Until webhooks answer, and caches know the runtime: one job, which is deleted again."""
        deadline = time.monotonic() + PATIENCE
        while (error := await self._try_first()) is not None:
            if time.monotonic() > deadline:
                raise error
            await asyncio.sleep(0.5)
        await self._pods_exist(NODES)
        await self._client.delete(TRAINJOBS, "first", SPACE)
        await self._pods_exist(0, exactly=True)

    async def _try_first(self) -> StatusError | None:
        try:
            await self._create("first")
        except StatusError as error:
            return error
        return None

    async def _pods_exist(self, count: int, *, exactly: bool = False) -> None:
        deadline = time.monotonic() + PATIENCE
        while (there := await self._count_pods()) < count or (exactly and there > count):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{there} of {count} pods after {PATIENCE:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN)

    async def _count_pods(self) -> int:
        answer = await self._client.raw("GET", f"{PODS.path(SPACE)}?limit=1")
        return len(answer.get("items") or ()) + int(answer["metadata"].get("remainingItemCount") or 0)

    async def _sample(self, processes: list[psutil.Process]) -> None:
        while True:
            self._peak = max(self._peak, sum(process.memory_info().rss for process in processes) / 1e6)
            await asyncio.sleep(_LOOK_AGAIN)


def _cpu(processes: list[psutil.Process]) -> float:
    return float(sum(process.cpu_times().user + process.cpu_times().system for process in processes))


def measure(managers: Managers, directory: Path, jobs: int) -> Result:
    flags = ("--kube-api-qps", "1000", "--kube-api-burst", "2000", "--concurrent-job-syncs", "20")
    cluster = Kubernetes(directory / "kube", controllers="*", manager_flags=flags, fsync=True)
    with cluster as server:
        pids = [process.pid for process in cluster.processes]
        before = _cpu([psutil.Process(pid) for pid in pids])
        result = asyncio.run(Measure(server, managers, directory, jobs).run())
        others = _cpu([psutil.Process(pid) for pid in pids]) - before
    print(
        f"{managers.name}: {jobs} TrainJobs x {NODES}: {result.rate:.1f} pods/s, peak memory {result.memory:.0f} MB, "
        f"CPU {result.cpu:.1f} s; Kubernetes itself {others:.1f} s",
        flush=True,
    )
    return result


def main() -> None:
    """Run both in turn, print each run and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench.trainjob")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each")
    parser.add_argument("--peers", type=Path, help="directory of upstream's programs, with the command `start`")
    arguments = parser.parse_args()
    prefer_uvloop()
    kinds: list[Callable[[], Managers]] = [Ours]
    if arguments.peers is not None:
        kinds.append(lambda: Upstream(arguments.peers))
    results: dict[str, list[Result]] = {}
    for _ in range(arguments.rounds):
        for kind in kinds:
            managers = kind()
            with tempfile.TemporaryDirectory(prefix="bench-trainjob-") as directory:
                results.setdefault(managers.name, []).append(measure(managers, Path(directory), arguments.jobs))
    ours = results[Ours.name]
    print(f"operator: peak memory {max(result.memory for result in ours):.0f} MB (goal at most 120)")
    if theirs := results.get(Upstream.name):
        ratio = fmean(result.rate for result in ours) / fmean(result.rate for result in theirs)
        cpu = fmean(result.cpu for result in theirs) / fmean(result.cpu for result in ours)
        print(f"ratio of pods/s to upstream: {ratio:.2f} (goal at least 3); of upstream's CPU to ours: {cpu:.2f}")


if __name__ == "__main__":
    main()
