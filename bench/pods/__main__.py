"""`python -m bench.pods [--pods 100]`: pod created → its process running, exec, log throughput, memory per pod.

Starts `yard up` in a process of its own. `--kubeconfig FILE --image IMAGE` measures the same pods on that cluster too
(a kubelet), in the same run, and prints the ratios. Both are asked over HTTPS, in the same way. One line per subject.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from tests.support import kubectl as kubectls
from tests.support.yard import Yard

from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.node.shutdown import stop_pods

# the process itself prints when it started, so that nothing after it can improve the figure
STAMP = ["sh", "-c", "date +%s.%N; exec sleep 1000"]
JOBS, JOB_SIZE, EXECS = 25, 4, 20
LOG_MEGABYTES = 200
SETTLE_SECONDS = 3


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
    """A cluster where pods run."""

    def __init__(self, name: str, config: Path, image: str) -> None:
        self.name, self.config, self.image = name, config, image
        self._transport = HttpTransport(kubeconfig.load(config), user_agent="bench")
        self.client = Client(self._transport, manager="bench")

    async def close(self) -> None:
        await self._transport.close()

    async def create(self, name: str, command: list[str]) -> None:
        await self.client.create(PODS, pod(name, self.image, command), "default")

    async def until(self, name: str, phase: str) -> None:
        async for _, seen in self.client.watch(PODS, "default", initial=True, fields=f"metadata.name={name}"):
            if (seen.get("status") or {}).get("phase") == phase:
                return

    async def started(self, count: int, prefix: str, *, together: int = 1) -> list[float]:
        """Milliseconds from the first request to the last process, `together` pods at a time. Deletes them."""
        durations = []
        for start in range(0, count * together, together):
            names = [f"{prefix}-{start + number}" for number in range(together)]
            start_time = time.time()
            await asyncio.gather(*(self.create(name, STAMP) for name in names))
            await asyncio.gather(*(self.until(name, "Running") for name in names))
            durations.append((max([await self._stamp(name) for name in names]) - start_time) * 1000)
        for number in range(count * together):
            await self.client.delete(PODS, f"{prefix}-{number}", "default", grace=0)
        await asyncio.sleep(SETTLE_SECONDS)  # otherwise the next measurement includes their end
        return durations

    async def _stamp(self, name: str) -> float:
        while True:
            response = await self._transport.request("GET", PODS.path("default", name, "log"))
            # the log line may come a moment after the phase
            with contextlib.suppress(ValueError, IndexError):
                return float(response.body.split()[0])
            await asyncio.sleep(0.01)

    async def execs(self) -> list[float]:
        """Milliseconds of `kubectl exec`, the program's own start included."""
        await self.create("exec", STAMP)
        await self.until("exec", "Running")
        newest = kubectls.newest()
        assert newest is not None, "kubectl is needed"
        command = [str(newest.path), "--kubeconfig", str(self.config), "exec", "exec", "--", "true"]
        durations = []
        for _ in range(EXECS):
            start_time = time.perf_counter()
            await (await asyncio.create_subprocess_exec(*command)).wait()
            durations.append((time.perf_counter() - start_time) * 1000)
        return durations

    async def log_rate(self) -> float:
        """MB/s from a container's pipe to its log file."""
        line = "0123456789012345678901234567890123456789"
        start_time = time.time()
        await self.create("talker", ["sh", "-c", f"yes {line} | head -c {LOG_MEGABYTES}000000"])
        await self.until("talker", "Succeeded")
        return LOG_MEGABYTES / (time.time() - start_time)


async def measure(subject: Subject, pods: int) -> dict[str, float]:
    """Prints the figures and returns the medians, which are compared."""
    await subject.started(3, "warm")
    durations = {
        "one pod": await subject.started(pods, "one"),
        f"job of {JOB_SIZE}, all running": await subject.started(min(JOBS, pods), "job", together=JOB_SIZE),
        "kubectl exec": await subject.execs(),
    }
    for name, values in durations.items():
        p99 = sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
        figures = f"p50 {statistics.median(values):.0f} ms, p99 {p99:.0f} ms"
        spread = f"mean {statistics.mean(values):.0f} ± {statistics.pstdev(values):.0f} ms, n {len(values)}"
        print(f"{subject.name} {name}: {figures}, {spread}", flush=True)
    print(f"{subject.name} log: {await subject.log_rate():.0f} MB/s", flush=True)
    return {name: statistics.median(values) for name, values in durations.items()}


def megabytes(processes: list[psutil.Process]) -> tuple[float, float]:
    """Resident memory and unshared memory; the median of each."""
    infos = [process.memory_full_info() for process in processes]
    return statistics.median(info.rss for info in infos) / 1e6, statistics.median(info.uss for info in infos) / 1e6


async def measure_memory(ours: Subject, state: Path, plane: psutil.Process) -> None:
    count = 20
    before = plane.memory_info().rss
    for number in range(count):
        await ours.create(f"many-{number}", STAMP)
    for number in range(count):
        await ours.until(f"many-{number}", "Running")
    pod_dirs = (state / "node" / "pods").iterdir()
    pids = [int((path / "shim.lock").read_text()) for path in pod_dirs if (path / "shim.sock").exists()]
    shims = [
        psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)
    ]  # shims of pods that ended do not exist any more
    resident, own = megabytes(shims)
    grown = (plane.memory_info().rss - before) / count / 1e6
    total = plane.memory_info().rss / 1e6
    shim = f"shim {resident:.1f} MB resident, {own:.1f} MB its own, n {len(shims)}"
    print(f"torchyard memory: {shim}; plane with agent {total:.0f} MB, {grown:.2f} MB more per pod", flush=True)


@contextlib.contextmanager
def our_plane(directory: Path) -> Iterator[Yard]:
    yard = Yard(directory, flags=("--node",))
    try:
        with yard:
            yield yard
    finally:
        asyncio.run(stop_pods(yard.state / "node"))


async def measure_ours(yard: Yard, pods: int) -> dict[str, float]:
    ours = Subject("torchyard", yard.kubeconfig, "busybox")
    assert yard.process
    try:
        figures = await measure(ours, pods)
        await measure_memory(ours, yard.state, psutil.Process(yard.process.pid))
    finally:
        await ours.close()
    return figures


async def measure_theirs(config: Path, image: str, pods: int) -> dict[str, float]:
    theirs = Subject("kubelet", config, image)
    try:
        return await measure(theirs, pods)
    finally:
        await theirs.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pods", description=__doc__)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster with a kubelet")
    parser.add_argument("--image", default="busybox", help="an image with a shell that its node has")
    parser.add_argument("--theirs", type=int, default=20, help="how many pods to start there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pods-") as temporary, our_plane(Path(temporary)) as yard:
        ours = asyncio.run(measure_ours(yard, arguments.pods))
    if arguments.kubeconfig:
        theirs = asyncio.run(measure_theirs(arguments.kubeconfig, arguments.image, arguments.theirs))
        ratios = ", ".join(f"{name} {theirs[name] / ours[name]:.1f}" for name in ours)
        print(f"ratio kubelet / torchyard: {ratios}")


if __name__ == "__main__":
    main()
