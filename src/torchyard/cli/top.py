"""`yard top`: what the replicas of jobs use of CPU, memory and GPUs."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle

_COLUMNS = {
    "job": "JOB",
    "replica": "REPLICA",
    "phase": "STATUS",
    "cpu": "CPU",
    "cpuLimit": "LIMIT",
    "memory": "MEMORY",
    "memoryLimit": "LIMIT",
    "gpus": "GPUS",
    "gpuUse": "BUSY",
    "gpuMemory": "GPU MEMORY",
}
_GPU_COLUMNS = ("gpuUse", "gpuMemory")
_PERIOD_SECONDS = 2.0
_CLEAR = "\033[H\033[J"


@with_cluster
def top(
    cluster: Cluster,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Name of a job. Default: all that run.")] = "",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Show it again every two seconds, until Ctrl-C.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Show what each replica of a job uses: CPU, memory, and its GPUs, with how busy they are where the node knows it.

    Example: yard top mnist -w
    """
    output = Output.name if quiet else output
    if watch and for_programs(output):
        raise YardError("--watch prints a table", hint="leave out -o and -q, or use -o wide", code="BadOption")
    empty = f"{job} has no replicas: `yard why {job}` says why" if job else "no job has running replicas"

    async def work(client: Client) -> None:
        while True:
            rows = await _rows(client, cluster, job)
            if watch and sys.stdout.isatty():
                typer.echo(_CLEAR, nl=False)
            _show(rows, output, empty)
            if not watch:
                return
            await asyncio.sleep(_PERIOD_SECONDS)
            if not sys.stdout.isatty():
                say("")

    cluster.run(work)


def _show(rows: list[dict[str, Any]], output: Output, empty: str) -> None:
    if for_programs(output):
        show_records(rows, output, columns={}, empty="")
        return
    has_gpus = output is Output.wide or any(row["gpus"] for row in rows)
    columns = {name: title for name, title in _COLUMNS.items() if has_gpus or name not in _GPU_COLUMNS}
    show_records(list(map(_for_people, rows)), output, columns=columns, empty=empty)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    """A replica without GPUs has no use of them; that of others may be unknown, which is not zero."""
    if not row["gpus"]:
        return row
    use = "unknown" if row["gpuUse"] is None else f"{row['gpuUse']:.0%}"
    return {**row, "gpuUse": use, "gpuMemory": row["gpuMemory"] or "unknown"}


async def _rows(client: Client, cluster: Cluster, name: str) -> list[dict[str, Any]]:
    from torchyard.core.run.state import run_state
    from torchyard.kube.job_lookup import list_jobs, pods_of_job

    if name:
        jobs = [await cluster.find_job(client, name)]
    else:
        jobs = [job for job in await list_jobs(client, cluster.namespace) if not run_state(job.object).done]
    usage = await _usage(client, cluster.namespace)
    return [_row(job, pod, usage) for job in jobs for pod in await pods_of_job(client, job) if name or _runs(pod)]


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


async def _usage(client: Client, namespace: str) -> dict[str, dict[str, Any]]:
    """The usage of all containers of each pod."""
    try:
        metrics = await client.raw("GET", f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods")
    except StatusError as error:
        if error.status not in (404, 503):
            raise
        raise YardError(
            "the cluster does not report the usage of pods",
            hint="install metrics-server, or start the plane with a node",
            code="NoMetrics",
        ) from error
    return usage_of_pods(metrics["items"])


def usage_of_pods(pods: list[Object]) -> dict[str, dict[str, Any]]:
    """The usage of PodMetrics by the names of their pods."""
    from torchyard.api import quantity
    from torchyard.api.usage_names import GPU_MEMORY, GPUS

    usage: dict[str, dict[str, Any]] = {}
    for pod in pods:
        cpu = sum(quantity.parse(part["usage"].get("cpu", "0")).milli for part in pod["containers"])
        memory = sum(quantity.parse(part["usage"].get("memory", "0")).value for part in pod["containers"])
        parts = [part["usage"] for part in pod["containers"]]
        busy = [quantity.parse(part[GPUS]).milli / 1000 for part in parts if GPUS in part]
        gpu_memory = [quantity.parse(part[GPU_MEMORY]).value for part in parts if GPU_MEMORY in part]
        usage[pod["metadata"]["name"]] = {
            "cpu": f"{cpu}m",
            "memory": f"{memory / (1 << 20):.0f}Mi",
            "gpusBusy": sum(busy) if busy else None,
            "gpuMemory": f"{sum(gpu_memory) / (1 << 20):.0f}Mi" if gpu_memory else None,
        }
    return usage


def _row(job: JobHandle, pod: Object, usage: dict[str, dict[str, Any]]) -> dict[str, Any]:
    from torchyard.core.run.state import short_name

    name = str(pod["metadata"]["name"])
    limits = [(part.get("resources") or {}).get("limits") or {} for part in pod["spec"]["containers"]]
    gpus, used = _limit(limits, "nvidia.com/gpu"), usage.get(name, {})
    busy = used.get("gpusBusy")
    return {
        "name": name,
        "job": job.name,
        "replica": short_name(name, job.name),
        "phase": (pod.get("status") or {}).get("phase") or "Pending",
        "cpu": used.get("cpu"),
        "memory": used.get("memory"),
        "cpuLimit": _limit(limits, "cpu"),
        "memoryLimit": _limit(limits, "memory"),
        "gpus": gpus,
        "gpuUse": None if busy is None or not gpus else busy / int(gpus),
        "gpuMemory": used.get("gpuMemory"),
    }


def _limit(limits: list[dict[str, str]], resource: str) -> str | None:
    from torchyard.api import quantity

    values = [quantity.parse(limit[resource]) for limit in limits if limit.get(resource)]
    return str(sum(values[1:], values[0])) if values else None
