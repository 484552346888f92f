"""`yard logs JOB`: the logs of all replicas of a job, each line with its replica in front."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.cli.job_arguments import JobName
from torchyard.cli.options import say
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.cli.log_selection import LogSelection
    from torchyard.core.run.line_splitter import LogLine
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle


@with_cluster
def logs(
    cluster: Cluster,
    job: JobName,
    rank: Annotated[
        list[str] | None,
        typer.Option("--rank", metavar="RANK", help="Only this rank, or replica such as worker-0. Repeatable."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for the replicas and stream their lines until they end.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("-p", "--previous", help="The log of the container before its last restart.")
    ] = False,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Only lines newer than 30s, 5m or 2h.")] = "",
    tail: Annotated[int, typer.Option(min=-1, metavar="LINES", help="Only the last lines of each replica.")] = -1,
    grep: Annotated[str, typer.Option(metavar="REGEX", help="Only lines that match a regular expression.")] = "",
    container: Annotated[
        str, typer.Option("-c", "--container", metavar="NAME", help="Only this container. Default: all of them.")
    ] = "",
) -> None:
    """Show the logs of all replicas of a job, set-up and init containers included.

    Example: yard logs mnist -f --rank 0 --grep loss
    """
    from torchyard.cli.log_selection import LogSelection, parse_since

    if follow and (previous or since or tail >= 0):
        raise YardError("--follow shows a log from its start", hint="leave out --previous, --since and --tail")
    try:
        pattern = re.compile(grep)
    except re.error as error:
        raise YardError(f"--grep {grep}: it is no regular expression: {error}") from None
    selection = LogSelection(
        ranks=tuple(rank or ()),
        container=container,
        pattern=pattern,
        previous=previous,
        since_seconds=parse_since(since) if since else None,
        tail_lines=tail if tail >= 0 else None,
    )

    async def show(client: Client, chosen: JobHandle) -> None:
        await (_follow if follow else _print)(client, chosen, selection)

    try:
        cluster.run_with_job(job, show)
    except YardError as error:
        if error.code != "NotFound" or follow:
            raise
        from torchyard.cli.past_jobs import find_recorded, print_recorded_logs

        record = find_recorded(cluster, job, error)
        if previous:
            raise YardError(
                f"{job} was deleted: only the last log of each of its containers is kept",
                hint="leave out --previous",
                code="BadOption",
            ) from error
        print_recorded_logs(cluster, record, selection, lambda label, line: _show(label, line, selection))


async def _print(client: Client, job: JobHandle, selection: LogSelection) -> None:
    from torchyard.cli.log_stream import read_lines
    from torchyard.kube.job_lookup import pods_of_job

    pods = await pods_of_job(client, job)
    if not pods:
        raise YardError(
            f"{job.qualified_name} has no pods", hint=f"`yard why {job.name}` says why; -f waits until they start"
        )
    for pod in selection.pods(pods, job.name):
        for label, container in selection.containers(pod, job.name):
            try:
                lines = read_lines(
                    client,
                    pod["metadata"]["name"],
                    job.namespace,
                    container,
                    previous=selection.previous,
                    since_seconds=selection.since_seconds,
                    tail_lines=selection.tail_lines,
                )
                async for line in lines:
                    _show(label, line, selection)
            except StatusError as error:
                if error.status != 400:  # 400: the container has not started, or has no earlier log
                    raise
                typer.echo(f"[{label}] no log: {error.message}", err=True)


async def _follow(client: Client, job: JobHandle, selection: LogSelection) -> None:
    """Stream the log of every container of every pod as they start, until the job has ended and the logs with it."""
    from torchyard.cli.follow_logs import follow_logs

    await follow_logs(client, job, selection, lambda label, line: _show(label, line, selection))


def _show(label: str, line: LogLine, selection: LogSelection) -> None:
    if not line.overwritten and selection.pattern.search(line.text):
        say(f"[{label}] {line.text}")
