"""`yard ps`, `stop`, `resume`, `delete`, `events` and `why`: the jobs of every kind, by name."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import State, say
from torchyard.cli.target import Context, Kubeconfig, choose_connection, run_with_client

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.core.run.summary import JobSummary
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle

Namespace = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of the job. Default: the context's.")
]
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of a job; KIND/NAME if jobs of several kinds have it.")
]


class Output(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    name = "name"


def ps(
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the context's.")
    ] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
    selector: Annotated[str, typer.Option("-l", "--selector", metavar="LABELS", help="Label selector.")] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.table,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Print each job again when it changes.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """List the jobs: PyTorchJobs, Jobs, and Pods that belong to no other object.

    Example: yard ps -A -o wide
    """
    connection = choose_connection(kubeconfig, context, state)
    space = "" if all_namespaces else namespace or connection.namespace
    if watch and output not in (Output.table, Output.wide):
        raise YardError("--watch prints a table", hint="leave out -o, or use -o wide")

    async def work(client: Client) -> None:
        from torchyard.cli.job_table import JobTable, watch_jobs
        from torchyard.core.run.summary import summarize
        from torchyard.kube.job_lookup import list_jobs

        table = JobTable(with_namespace=all_namespaces, wide=output is Output.wide)
        if watch:
            await watch_jobs(client, space, selector, _print_lines, table)
            return
        jobs = await list_jobs(client, space, labels=selector)
        now = datetime.now(UTC)
        summaries = [summarize(job.object, now) for job in jobs]
        match output:
            case Output.json:
                say(json.dumps([_record(summary) for summary in summaries], indent=2))
            case Output.yaml:
                import yaml

                say(yaml.safe_dump([_record(summary) for summary in summaries], sort_keys=False).rstrip())
            case Output.name:
                for job in jobs:
                    say(job.qualified_name)
            case _ if summaries:
                _print_lines(table.lines(summaries))
            case _:
                say(f"no jobs in namespace {space}" if space else "no jobs")

    run_with_client(connection, work)


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        say(line)


def _record(summary: JobSummary) -> dict[str, Any]:
    return {
        "namespace": summary.namespace,
        "name": summary.name,
        "kind": summary.kind,
        "state": summary.state,
        "ready": summary.ready,
        "replicas": summary.replicas,
        "queue": summary.queue,
        "ageSeconds": int(summary.age.total_seconds()),
        "message": summary.message,
    }


def stop(
    job: JobName,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Suspend a job: its pods are deleted, the job stays. `yard resume` starts it again.

    Example: yard stop mnist
    """
    _with_job(job, namespace, kubeconfig, context, state, _suspend)


def resume(
    job: JobName,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Start a job again that `yard stop` suspended.

    Example: yard resume mnist
    """
    _with_job(job, namespace, kubeconfig, context, state, _resume)


def delete(
    job: JobName,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Delete a job with its pods and their logs.

    Example: yard delete mnist
    """
    _with_job(job, namespace, kubeconfig, context, state, _delete)


def events(
    job: JobName,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Show the events of a job, its workload and its pods, oldest first.

    Example: yard events mnist
    """
    _with_job(job, namespace, kubeconfig, context, state, _show_events)


def why(
    job: JobName,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Say why a job waits or has failed, and which command shows more.

    Example: yard why mnist
    """
    _with_job(job, namespace, kubeconfig, context, state, _explain)


def _with_job(
    name: str,
    namespace: str,
    kubeconfig: Path | None,
    context: str,
    state: Path | None,
    action: Callable[[Client, JobHandle], Awaitable[None]],
) -> None:
    connection = choose_connection(kubeconfig, context, state)

    async def work(client: Client) -> None:
        from torchyard.kube.job_lookup import find_job

        await action(client, await find_job(client, name, namespace or connection.namespace))

    run_with_client(connection, work)


async def _suspend(client: Client, job: JobHandle) -> None:
    if _is_suspended(job.object):
        raise YardError(f"{job.qualified_name} is suspended already", hint=f"start it with `yard resume {job.name}`")
    await _set_suspend(client, job, suspended=True)
    say(f"{job.qualified_name} suspended; `yard resume {job.name}` starts it again")


async def _resume(client: Client, job: JobHandle) -> None:
    from torchyard.core.run.waiting import queue_name

    if not _is_suspended(job.object):
        raise YardError(f"{job.qualified_name} is not suspended", hint=f"`yard why {job.name}` shows its state")
    if queue_name(job.object):
        raise YardError(
            f"{job.qualified_name} is suspended by its queue {queue_name(job.object)}, which starts it in its turn",
            hint=f"`yard why {job.name}` shows what it waits for",
        )
    await _set_suspend(client, job, suspended=False)
    say(f"{job.qualified_name} resumed")


def _is_suspended(obj: Object) -> bool:
    spec = obj.get("spec") or {}
    return bool((spec.get("runPolicy") or {}).get("suspend") if obj["kind"] == "PyTorchJob" else spec.get("suspend"))


async def _set_suspend(client: Client, job: JobHandle, *, suspended: bool) -> None:
    from torchyard.core.run.state import run_state, suspend_patch

    kind = job.object["kind"]
    if kind == "Pod":
        raise YardError(f"{job.qualified_name} is a Pod, which cannot be suspended", hint=f"`yard delete {job.name}`")
    state = run_state(job.object)
    if state.done:
        raise YardError(f"{job.qualified_name} has finished ({state.state})", hint="run its manifest with --replace")
    await client.patch(job.gvr, job.name, suspend_patch(kind, suspended=suspended), job.namespace)


async def _delete(client: Client, job: JobHandle) -> None:
    await client.delete(job.gvr, job.name, job.namespace, uid=job.object["metadata"]["uid"])
    say(f"{job.qualified_name} deleted")


async def _show_events(client: Client, job: JobHandle) -> None:
    from torchyard.kube.job_lookup import events_of, last_seen

    shown = await events_of(client, job)
    if not shown:
        say(f"no events of {job.qualified_name}; the server keeps them for an hour")
    for event in shown:
        about = event.get("involvedObject") or {}
        times = f" (x{event['count']})" if (event.get("count") or 1) > 1 else ""
        source = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
        detail = f"{event.get('message', '')}{times}"
        say(f"{last_seen(event)}  {event.get('type', ''):<8} {event.get('reason', ''):<20} {source}: {detail}")


async def _explain(client: Client, job: JobHandle) -> None:
    from torchyard.core.run.explain import explain
    from torchyard.kube.job_lookup import events_of, find_workload, pods_of_job

    workload = await find_workload(client, job.object)
    pods = await pods_of_job(client, job)
    for line in explain(job.object, pods, workload, await events_of(client, job)):
        say(line)
