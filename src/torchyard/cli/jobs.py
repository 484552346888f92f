"""`yard ps`, `stop`, `resume`, `delete`, `events` and `why`: the jobs of every kind, by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from torchyard.api.errors import YardError
from torchyard.cli.job_arguments import JobName
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, show_records
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.core.run.summary import JobSummary
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle


class Change(NamedTuple):
    """What a command did to a job."""

    job: str
    message: str


@with_cluster
def ps(
    cluster: Cluster,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
    selector: Annotated[str, typer.Option("-l", "--selector", metavar="LABELS", help="Label selector.")] = "",
    output: OutputOption = Output.table,
    quiet: Quiet = False,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Print each job again when it changes.")] = False,
) -> None:
    """List the jobs: PyTorchJobs, Jobs, and Pods that belong to no other object.

    Example: yard ps -A -o wide
    """
    output = Output.name if quiet else output
    space = "" if all_namespaces else cluster.namespace
    if watch and output not in (Output.table, Output.wide):
        raise YardError("--watch prints a table", hint="leave out -o and -q, or use -o wide", code="BadOption")

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
        if output is Output.name:
            _print_lines([job.qualified_name for job in jobs])
        elif output in (Output.json, Output.yaml):
            show_records([_record(summary) for summary in summaries], output, columns={}, empty="")
        elif summaries:
            _print_lines(table.lines(summaries))
        else:
            say(f"no jobs in namespace {space}" if space else "no jobs")

    cluster.run(work)


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


@with_cluster
def stop(cluster: Cluster, job: JobName, quiet: Quiet = False) -> None:
    """Suspend a job: its pods are deleted, the job stays. `yard resume` starts it again.

    Example: yard stop mnist
    """
    _report(cluster.run_with_job(job, _suspend), quiet=quiet)


@with_cluster
def resume(cluster: Cluster, job: JobName, quiet: Quiet = False) -> None:
    """Start a job again that `yard stop` suspended.

    Example: yard resume mnist
    """
    _report(cluster.run_with_job(job, _resume), quiet=quiet)


@with_cluster
def delete(cluster: Cluster, job: JobName, quiet: Quiet = False) -> None:
    """Delete a job with its pods and their logs.

    Example: yard delete mnist
    """
    _report(cluster.run_with_job(job, _delete), quiet=quiet)


@with_cluster
def events(cluster: Cluster, job: JobName, output: OutputOption = Output.table) -> None:
    """Show the events of a job, its workload and its pods, oldest first.

    Example: yard events mnist
    """
    records = cluster.run_with_job(job, _read_events)
    if output in (Output.table, Output.wide):
        _print_events(job, records)
    else:
        show_records(records, output, columns={}, empty="")


@with_cluster
def why(cluster: Cluster, job: JobName, output: OutputOption = Output.table) -> None:
    """Say why a job waits or has failed, and which command shows more.

    Example: yard why mnist
    """
    record = cluster.run_with_job(job, _explain)
    if output in (Output.table, Output.wide):
        _print_lines(record["reasons"])
    else:
        show_records([record], output, columns={}, empty="")


def _report(change: Change, *, quiet: bool) -> None:
    say(change.job if quiet else f"{change.job} {change.message}")


async def _suspend(client: Client, job: JobHandle) -> Change:
    if _is_suspended(job.object):
        raise YardError(f"{job.qualified_name} is suspended already", hint=f"start it with `yard resume {job.name}`")
    await _set_suspend(client, job, suspended=True)
    return Change(job.qualified_name, f"suspended; `yard resume {job.name}` starts it again")


async def _resume(client: Client, job: JobHandle) -> Change:
    from torchyard.core.run.waiting import queue_name

    if not _is_suspended(job.object):
        raise YardError(f"{job.qualified_name} is not suspended", hint=f"`yard why {job.name}` shows its state")
    if queue_name(job.object):
        raise YardError(
            f"{job.qualified_name} is suspended by its queue {queue_name(job.object)}, which starts it in its turn",
            hint=f"`yard why {job.name}` shows what it waits for",
        )
    await _set_suspend(client, job, suspended=False)
    return Change(job.qualified_name, "resumed")


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


async def _delete(client: Client, job: JobHandle) -> Change:
    await client.delete(job.gvr, job.name, job.namespace, uid=job.object["metadata"]["uid"])
    return Change(job.qualified_name, "deleted")


async def _read_events(client: Client, job: JobHandle) -> list[Record]:
    from torchyard.kube.job_lookup import events_of, last_seen

    return [
        {
            "name": f"event/{event['metadata']['name']}",
            "time": last_seen(event),
            "type": event.get("type", ""),
            "reason": event.get("reason", ""),
            "object": "/".join((str(about.get("kind", "")).lower(), str(about.get("name", "")))),
            "message": event.get("message", ""),
            "count": event.get("count") or 1,
        }
        for event in await events_of(client, job)
        for about in (event.get("involvedObject") or {},)
    ]


def _print_events(job: str, records: list[Record]) -> None:
    if not records:
        say(f"no events of {job}; the server keeps them for an hour")
    for event in records:
        times = f" (x{event['count']})" if event["count"] > 1 else ""
        say(f"{event['time']}  {event['type']:<8} {event['reason']:<20} {event['object']}: {event['message']}{times}")


async def _explain(client: Client, job: JobHandle) -> Record:
    from torchyard.core.run.explain import explain
    from torchyard.core.run.state import run_state
    from torchyard.kube.job_lookup import events_of, find_workload, pods_of_job
    from torchyard.kube.spelling import with_suggestion

    workload = await find_workload(client, job.object)
    pods = await pods_of_job(client, job)
    lines = explain(job.object, pods, workload, await events_of(client, job))
    reasons = [await with_suggestion(client, line, job.namespace) for line in lines]
    return {"name": job.qualified_name, "state": run_state(job.object).state, "reasons": reasons}
