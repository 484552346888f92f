"""`yard top`: what the replicas of jobs use of CPU and memory."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, show_records
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
}
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
    """Show what each replica of a job uses: CPU, memory, and the GPUs it has.

    Example: yard top mnist -w
    """

    output = Output.name if quiet else output

    async def work(client: Client) -> None:
        while True:
            rows = await _rows(client, cluster, job)
            if watch and sys.stdout.isatty():
                typer.echo(_CLEAR, nl=False)
            show_records(rows, output, columns=_COLUMNS, empty="no job has running replicas")
            if not watch:
                return
            await asyncio.sleep(_PERIOD_SECONDS)
            if not sys.stdout.isatty():
                say("")

    cluster.run(work)


async def _rows(client: Client, cluster: Cluster, name: str) -> list[dict[str, Any]]:
    from torchyard.core.run.state import run_state
    from torchyard.kube.job_lookup import find_job, list_jobs, pods_of_job

    if name:
        jobs = [await find_job(client, name, cluster.namespace)]
    else:
        jobs = [job for job in await list_jobs(client, cluster.namespace) if not run_state(job.object).done]
    usage = await _usage(client, cluster.namespace)
    return [_row(job, pod, usage) for job in jobs for pod in await pods_of_job(client, job) if name or _runs(pod)]


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


async def _usage(client: Client, namespace: str) -> dict[str, dict[str, str]]:
    """The usage of all containers of each pod."""
    from torchyard.api import quantity

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
    usage: dict[str, dict[str, str]] = {}
    for pod in metrics["items"]:
        cpu = sum(quantity.parse(part["usage"].get("cpu", "0")).milli for part in pod["containers"])
        memory = sum(quantity.parse(part["usage"].get("memory", "0")).value for part in pod["containers"])
        usage[pod["metadata"]["name"]] = {"cpu": f"{cpu}m", "memory": f"{memory / (1 << 20):.0f}Mi"}
    return usage


def _row(job: JobHandle, pod: Object, usage: dict[str, dict[str, str]]) -> dict[str, Any]:
    from torchyard.core.run.state import short_name

    name = str(pod["metadata"]["name"])
    limits = [(part.get("resources") or {}).get("limits") or {} for part in pod["spec"]["containers"]]
    return {
        "name": name,
        "job": job.name,
        "replica": short_name(name, job.name),
        "phase": (pod.get("status") or {}).get("phase") or "Pending",
        **usage.get(name, {"cpu": None, "memory": None}),
        "cpuLimit": _limit(limits, "cpu"),
        "memoryLimit": _limit(limits, "memory"),
        "gpus": _limit(limits, "nvidia.com/gpu"),
    }


def _limit(limits: list[dict[str, str]], resource: str) -> str | None:
    from torchyard.api import quantity

    values = [quantity.parse(limit[resource]) for limit in limits if limit.get(resource)]
    return str(sum(values[1:], values[0])) if values else None
