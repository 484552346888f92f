"""What metrics and traces cost a plane, in CPU time: idle, and with 1,000 PyTorchJobs.

Two planes of the same objects run one after the other in processes of their own: one that nothing scrapes and that
exports no traces, and one that is scraped as Prometheus does (every 15 s) and exports traces of its jobs to a collector
of this process. A tenth of the jobs end during the measurement, so that there is something to trace. CPU time depends
little on what else the machine does; the budgets are shares of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load

PODS = GroupVersionResource("", "v1", "pods")
SCRAPE_SECONDS = 15.0
BUDGETS = {0: 1.0, 1000: 3.0}  # percent of a core, by jobs
_WRITES = 8


class Collector:
    """Receives traces as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.traces = 0

    async def __aenter__(self) -> Collector:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        document = await request.json()
        spans = [span for each in document["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]
        self.traces += len({span["traceId"] for span in spans})
        return web.json_response({})


def job(index: int) -> Object:
    container = {"name": "pytorch", "image": "busybox"}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica}}
    return {
        "apiVersion": JOBS.api_version,
        "kind": "PyTorchJob",
        "metadata": {"name": f"job-{index}", "namespace": "default"},
        "spec": spec,
    }


async def measure(jobs: int, seconds: float, *, otlp: str, scraped: bool) -> tuple[float, float]:
    """Percent of a core that the plane uses, and milliseconds of CPU of one scrape."""
    with tempfile.TemporaryDirectory(prefix="bench-monitoring-") as directory:
        state = Path(directory) / "state"
        command = [sys.executable, "-m", "torchyard.cli", "up", "--state", str(state), "--port", "0", "--no-node"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        if otlp:
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
        with (Path(directory) / "yard.log").open("wb") as log:
            started = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=environment)
        try:
            while not (state / "kubeconfig").exists():
                if started.returncode is not None:
                    raise SystemExit((Path(directory) / "yard.log").read_text())
                await asyncio.sleep(0.05)
            transport = HttpTransport(load(state / "kubeconfig"), user_agent="bench")
            client = Client(transport, manager="bench")
            try:
                return await _measure(client, transport, psutil.Process(started.pid), jobs, seconds, scraped=scraped)
            finally:
                await client.close()
        finally:
            started.terminate()
            await started.wait()


async def _measure(
    client: Client, transport: HttpTransport, plane: psutil.Process, jobs: int, seconds: float, *, scraped: bool
) -> tuple[float, float]:
    for first in range(0, jobs, _WRITES):
        await asyncio.gather(
            *(client.create(JOBS, job(index), "default") for index in range(first, min(jobs, first + _WRITES)))
        )
    await _settle(plane)
    pods = (await client.list(PODS, "default")).items
    assert len(pods) == jobs, f"{len(pods)} of {jobs} pods"
    before, begin = _cpu(plane), time.monotonic()
    following = begin
    ending = iter(range(jobs // 10))
    while time.monotonic() < begin + seconds:
        if scraped and time.monotonic() >= following:
            following += SCRAPE_SECONDS
            await _scrape(transport)
        index = next(ending, None)
        if index is not None:
            await _end(client, index)
        await asyncio.sleep(max(0.05, seconds / (1.2 * max(1, jobs // 10))) if jobs else 1.0)
    used = 100 * (_cpu(plane) - before) / (time.monotonic() - begin)
    before = _cpu(plane)
    for _ in range(20):
        await _scrape(transport)
    return used, 1000 * (_cpu(plane) - before) / 20


async def _end(client: Client, index: int) -> None:
    """What a node reports when the program of a pod has ended."""
    terminated = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
    container = {
        "name": "pytorch",
        "state": {"terminated": terminated},
        "image": "busybox",
        "imageID": "",
        "ready": False,
    }
    status = {"phase": "Succeeded", "containerStatuses": [{**container, "restartCount": 0}]}
    await client.patch(PODS, f"job-{index}-master-0", {"status": status}, "default", subresource="status")


async def _scrape(transport: HttpTransport) -> None:
    response = await transport.request("GET", "/metrics")
    assert response.status == 200, response.body


async def _settle(plane: psutil.Process) -> None:
    """Until the plane has nothing left to do: less than 5 % of a core for two seconds."""
    deadline = time.monotonic() + 120
    before = _cpu(plane)
    while time.monotonic() < deadline:
        await asyncio.sleep(2)
        now = _cpu(plane)
        if now - before < 0.1:
            return
        before = now


def _cpu(plane: psutil.Process) -> float:
    times = plane.cpu_times()
    return float(times.user + times.system)


async def main(seconds: float) -> int:
    is_met = True
    print(f"{'jobs':>6} {'without':>9} {'with':>7} {'cost':>7} {'budget':>7} {'a scrape':>10} {'traces':>7}")
    for jobs, budget in BUDGETS.items():
        async with Collector() as collector:
            without, _ = await measure(jobs, seconds, otlp="", scraped=False)
            used, scrape = await measure(jobs, seconds, otlp=collector.url, scraped=True)
        cost = used - without
        is_met &= cost <= budget
        row: tuple[Any, ...] = (jobs, without, used, cost, budget, scrape, collector.traces)
        print("{:>6} {:>7.2f} % {:>5.2f} % {:>5.2f} % {:>5.1f} % {:>7.1f} ms {:>7}".format(*row), flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long each plane is measured")
    sys.exit(asyncio.run(main(parser.parse_args().seconds)))
