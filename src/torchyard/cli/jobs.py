"""`yard ps`, `stop`, `resume`, `delete`, `events` and `why`: the jobs of every kind, by name."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.job_arguments import JobName, JobNames
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, show_records, show_result
from torchyard.cli.printable import mask_unprintable
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.core.run.summary import JobSummary
    from torchyard.jobs.actions import Change, JobEvent
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle


@with_cluster
def ps(
    cluster: Cluster,
    names: JobNames = None,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
    selector: Annotated[str, typer.Option("-l", "--selector", metavar="LABELS", help="Label selector.")] = "",
    output: OutputOption = Output.table,
    quiet: Quiet = False,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Print each job again when it changes.")] = False,
) -> None:
    """List the jobs: PyTorchJobs, TrainJobs, JobSets, Jobs, and Pods that belong to no other object.

    Example: yard ps -A -o wide
    """
    output = Output.name if quiet else output
    if watch and output not in (Output.table, Output.wide):
        raise YardError("--watch prints a table", hint="leave out -o and -q, or use -o wide", code="BadOption")
    if names and (all_namespaces or selector):
        raise YardError(
            "a job is named in one namespace and without a selector",
            hint="leave out -A and -l, or the names",
            code="BadOption",
        )
    space = "" if all_namespaces else cluster.namespace

    async def work(client: Client) -> None:
        from torchyard.cli.job_table import JobTable, watch_jobs
        from torchyard.core.run.summary import summarize_with_links
        from torchyard.kube.job_lookup import list_jobs

        table = JobTable(with_namespace=all_namespaces, wide=output is Output.wide)
        if watch:
            named = [await cluster.find_job(client, name) for name in names or ()]
            only = {(job.namespace, str(job.object["kind"]), job.name) for job in named}
            await watch_jobs(client, space, selector, _print_lines, table, only=only)
            return
        if names:
            named = [await cluster.find_job(client, name) for name in names]
            jobs = list({job.object["metadata"]["uid"]: job for job in named}.values())
        else:
            jobs = await list_jobs(client, space, labels=selector)
        now = datetime.now(UTC)
        positions = await _read_positions(client, jobs)
        summaries = [
            summarize_with_links(job.object, now, positions.get(job.object["metadata"]["uid"])) for job in jobs
        ]
        if output is Output.name:
            _print_lines([job.qualified_name for job in jobs])
        elif output in (Output.json, Output.yaml):
            show_records([_record(summary) for summary in summaries], output, columns={}, empty="")
        elif summaries:
            _print_lines(table.lines(summaries))
        else:
            say(f"no jobs in namespace {space}" if space else "no jobs")

    cluster.run(work)


async def _read_positions(client: Client, jobs: list[JobHandle]) -> dict[str, int]:
    """The positions of the jobs that wait in queues, by uid. Without such jobs, nothing is read."""
    from torchyard.core.run.state import run_state
    from torchyard.core.run.waiting import queue_name

    if not any(queue_name(job.object) and run_state(job.object).state == "Suspended" for job in jobs):
        return {}
    from torchyard.jobs.pending import read_positions

    return await read_positions(client)


def _print_lines(lines: list[str]) -> None:
    """Progress and messages are what programs wrote: no escape sequence of them reaches the terminal."""
    for line in lines:
        say(mask_unprintable(" ".join(line.splitlines())))


def _record(summary: JobSummary) -> dict[str, Any]:
    return {
        "namespace": summary.namespace,
        "name": summary.name,
        "kind": summary.kind,
        "state": summary.state,
        "ready": summary.ready,
        "replicas": summary.replicas,
        "queue": summary.queue,
        "queuePosition": summary.queue_position,
        "ageSeconds": int(summary.age.total_seconds()),
        "progress": summary.progress,
        "message": summary.message,
        "links": [link._asdict() for link in summary.links],
    }


@with_cluster
def stop(cluster: Cluster, job: JobName, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Suspend a job: its pods are deleted, the job stays. `yard resume` starts it again.

    Example: yard stop mnist
    """
    from torchyard.jobs.actions import suspend

    _report(cluster.run_with_job(job, suspend), output, quiet=quiet)


@with_cluster
def resume(cluster: Cluster, job: JobName, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Start a job again that `yard stop` suspended.

    Example: yard resume mnist
    """
    from torchyard.jobs.actions import resume

    _report(cluster.run_with_job(job, resume), output, quiet=quiet)


@with_cluster
def delete(cluster: Cluster, job: JobName, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Delete a job with its pods. A plane keeps its record and its logs: see `yard history`.

    Example: yard delete mnist
    """
    from torchyard.jobs.actions import delete

    _report(cluster.run_with_job(job, delete), output, quiet=quiet)


@with_cluster
def events(cluster: Cluster, job: JobName, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Show the events of a job, its workload and its pods, oldest first.

    Example: yard events mnist
    """
    from torchyard.jobs.actions import read_events

    records = cluster.run_with_job(job, read_events)
    output = Output.name if quiet else output
    if output in (Output.table, Output.wide):
        _print_events(job, records)
    else:
        show_records([asdict(record) for record in records], output, columns={}, empty="")


@with_cluster
def why(cluster: Cluster, job: JobName, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Say why a job waits or has failed, which command shows more, and which experiment trackers it names.

    Example: yard why mnist
    """
    record = _explain_job(cluster, job)
    output = Output.name if quiet else output
    if output in (Output.table, Output.wide):
        _print_lines([*record["reasons"], *(f"{link['tracker']}: {link['url']}" for link in record["links"])])
    else:
        show_records([record], output, columns={}, empty="")


def _report(change: Change, output: Output, *, quiet: bool) -> None:
    show_result({"name": change.job, "action": change.action}, output, str(change), quiet=quiet)


def _print_events(job: str, records: list[JobEvent]) -> None:
    if not records:
        say(f"no events of {job}; the server keeps them for an hour")
    for event in records:
        times = f" (x{event.count})" if event.count > 1 else ""
        _print_lines([f"{event.time}  {event.type:<8} {event.reason:<20} {event.object}: {event.message}{times}"])


def _explain_job(cluster: Cluster, job: str) -> Record:
    try:
        return cluster.run_with_job(job, partial(_explain, cluster))
    except YardError as error:
        if error.code != "NotFound":
            raise
        from torchyard.core.run.explain import explain_record
        from torchyard.core.run.tracking import tracking_links
        from torchyard.jobs.past_jobs import find_recorded
        from torchyard.kube.job_lookup import KINDS, qualified_name

        record = find_recorded(cluster, job, error)
        return {
            "name": qualified_name(KINDS[record["kind"]], record["object"]),
            "state": record["state"],
            "reasons": explain_record(record),
            "links": [link._asdict() for link in tracking_links(record["object"])],
        }


async def _explain(cluster: Cluster, client: Client, job: JobHandle) -> Record:
    from torchyard.core.run.state import run_state
    from torchyard.core.run.tracking import tracking_links
    from torchyard.jobs.actions import read_reasons

    reasons = await read_reasons(client, job, cluster)
    links = [link._asdict() for link in tracking_links(job.object)]
    return {"name": job.qualified_name, "state": run_state(job.object).state, "reasons": reasons, "links": links}
