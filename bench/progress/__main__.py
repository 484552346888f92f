"""`python -m bench.progress`: what it costs a plane that many jobs report their progress.

Two sources, one after the other. Endpoint: TrainJobs of a plane post a report every five seconds, as Transformers and
the SDK do; the SDK keeps its connection, Transformers opens one for each report (`--reconnect`). Log: as many logs get
a line every second, and a node's scanner reads them. Prints the plane's CPU time in percent of a core beyond that of
the same plane without reports, and how often the jobs were written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.core.progress.reports import ProgressReport
from torchyard.node.logs.progress import ProgressScanner

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = f"{TRAINER}/namespaces/default/trainjobs"
WARM_UP = 15.0
INTERVAL = 5.0  # of the SDK's and Transformers' reports


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _create_jobs(server: Server, count: int) -> None:
    """Suspended, so that the reports are the plane's only work."""
    eventually(
        lambda: server.admin.get(f"{TRAINER}/clustertrainingruntimes/torch-distributed").status == 200, "the runtime"
    )
    for number in range(count):
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": f"job-{number}"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True},
        }
        created = server.admin.post(JOBS, job)
        assert created.status == 201, created
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/job-{count - 1}"
    eventually(lambda: server.admin.get(path).status == 200, "the JobSets", 300)


async def _report(server: Server, job: str, delay: float, end: float, *, reconnect: bool) -> None:
    """Post reports until the end."""
    parts, context = urlsplit(server.url), ssl.create_default_context(cafile=str(server.ca))
    await asyncio.sleep(delay)
    sent, reader, writer = 0, None, None
    while time.monotonic() < end:
        if reader is None or writer is None:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        status = {
            "lastUpdatedTime": datetime.now(UTC).isoformat(),
            "progressPercentage": min(sent, 99),
            "metrics": [{"name": "loss", "value": str(1 / (sent + 1))}],
        }
        body = json.dumps({"trainerStatus": status})
        head = f"POST {JOBS}/{job}/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert answer.startswith("HTTP/1.1 200"), answer
        length = next(line for line in answer.lower().splitlines() if line.startswith("content-length:"))
        await reader.readexactly(int(length.split(":")[1]))
        sent += 1
        if reconnect:
            writer.close()
            reader = writer = None
        await asyncio.sleep(INTERVAL)
    if writer is not None:
        writer.close()


async def _report_all(server: Server, jobs: int, seconds: float, *, reconnect: bool) -> None:
    end = time.monotonic() + WARM_UP + seconds
    reports = (
        _report(server, f"job-{number}", INTERVAL * number / jobs, end, reconnect=reconnect) for number in range(jobs)
    )
    await asyncio.gather(*reports)


def _writes(server: Server) -> int:
    """How often the statuses were written with progress: by the metrics of the server."""
    text = server.admin.get("/metrics").text
    lines = (
        line
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
        and 'verb="patch"' in line
        and 'resource="trainjobs"' in line
        and 'subresource="status"' in line
    )
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


def measure_endpoint(jobs: int, seconds: float, *, reconnect: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        yard = Yard(Path(directory), controllers="*")
        with yard as server:
            assert yard.process is not None
            pid = yard.process.pid
            _create_jobs(server, jobs)
            time.sleep(5)  # until the controllers have nothing left to do
            before, start = _cpu_seconds(pid), time.monotonic()
            time.sleep(10)
            idle = (_cpu_seconds(pid) - before) / (time.monotonic() - start)
            thread = Thread(target=asyncio.run, args=[_report_all(server, jobs, seconds, reconnect=reconnect)])
            thread.start()
            time.sleep(WARM_UP)  # the first report of each job is written at once
            written, before, start = _writes(server), _cpu_seconds(pid), time.monotonic()
            time.sleep(seconds)
            elapsed = time.monotonic() - start
            busy, writes = (_cpu_seconds(pid) - before) / elapsed, _writes(server) - written
            thread.join()
    kind = "a connection for each report" if reconnect else "connections that are kept"
    print(
        f"endpoint, {kind}: {jobs} jobs, {jobs / INTERVAL:.0f} reports/s, {writes / elapsed:.0f} writes/s"
        f" ({writes / jobs / elapsed * INTERVAL:.2f} per job in 5 s), {100 * (busy - idle):.1f} % of a core"
    )


def measure_logs(jobs: int, seconds: float) -> None:
    async def run(root: Path) -> tuple[float, int]:
        reports: list[ProgressReport] = []
        scanner = ProgressScanner(root, reports.append)
        logs = [_observe(scanner, root, number) for number in range(jobs)]
        task = asyncio.create_task(scanner.run())
        cost, end, step = 0.0, time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step += 1
            for log in logs:
                with log.open("a") as file:
                    file.write(f"2026-01-01T00:00:00.0Z stdout F step {step}/1000 loss={1 / step} lr=0.001\n")
            before = time.process_time()
            await asyncio.sleep(1)
            cost += time.process_time() - before
        task.cancel()
        return cost / seconds, len(reports)

    with tempfile.TemporaryDirectory() as directory:
        cost, count = asyncio.run(run(Path(directory)))
    print(f"log: {jobs} jobs, {count / seconds:.0f} reports/s, {100 * cost:.1f} % of a core")


def _observe(scanner: ProgressScanner, root: Path, number: int) -> Path:
    directory = root / str(number) / "containers" / "main"
    directory.mkdir(parents=True)
    (directory / "0.record").touch()
    owner = {"kind": "Job", "name": f"job-{number}", "uid": f"j{number}", "controller": True}
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": str(number), "ownerReferences": [owner]}
    statuses = [{"name": "main", "containerID": "id://0"}]
    status = {"phase": "Running", "containerStatuses": statuses}
    scanner.observe("ADDED", {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status})
    return directory / "0.log"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--reconnect", action="store_true", help="open a connection for each report")
    options = parser.parse_args()
    measure_logs(options.jobs, min(options.seconds, 20.0))
    measure_endpoint(options.jobs, options.seconds, reconnect=options.reconnect)


if __name__ == "__main__":
    main()
