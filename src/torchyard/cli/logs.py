"""`yard logs JOB`: the logs of all replicas of a job, each line with its replica in front."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.cli.job_arguments import JobName
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.core.run.line_splitter import LogLine
    from torchyard.jobs.follow_logs import ShowLine
    from torchyard.jobs.log_selection import LogSelection
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
    until: Annotated[
        str,
        typer.Option(metavar="REGEX", help="With -f: end with the first line that matches; fail if there is none."),
    ] = "",
    container: Annotated[
        str, typer.Option("-c", "--container", metavar="NAME", help="Only this container. Default: all of them.")
    ] = "",
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Show the logs of all replicas of a job, set-up and init containers included.

    With -o json, each line is an object with `replica` and `text`, on a line of its own; -o yaml is a list of them;
    -o name prints the replicas that have lines, -q the lines without their replica.

    Examples: yard logs mnist -f --rank 0 --grep loss; yard logs mnist -f --until "epoch 1"
    """
    from torchyard.jobs.log_selection import LogSelection, parse_since

    if follow and (previous or since or tail >= 0):
        raise YardError("--follow shows a log from its start", hint="leave out --previous, --since and --tail")
    if until and not follow:
        raise YardError("--until waits for a line", hint="add -f", code="BadOption")
    pattern = _compile("--grep", grep)
    selection = LogSelection(
        ranks=tuple(rank or ()),
        container=container,
        pattern=pattern,
        previous=previous,
        since_seconds=parse_since(since) if since else None,
        tail_lines=tail if tail >= 0 else None,
    )

    printer = LinePrinter(selection, output, quiet=quiet)

    async def show(client: Client, chosen: JobHandle) -> None:
        if follow:
            await _follow(client, chosen, selection, printer, _compile("--until", until) if until else None)
        else:
            await _print(client, chosen, selection, printer)

    try:
        cluster.run_with_job(job, show)
    except YardError as error:
        if error.code != "NotFound" or follow:
            raise
        from torchyard.jobs.past_jobs import find_recorded, print_recorded_logs

        record = find_recorded(cluster, job, error)
        if previous:
            raise YardError(
                f"{job} was deleted: only the last log of each of its containers is kept",
                hint="leave out --previous",
                code="BadOption",
            ) from error
        print_recorded_logs(cluster, record, selection, printer)


def _compile(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise YardError(f"{option} {text}: it is not a regular expression: {error}", code="BadOption") from None


async def _follow(
    client: Client, job: JobHandle, selection: LogSelection, show: ShowLine, until: re.Pattern[str] | None
) -> None:
    """Stream the log of every container as they start, until the job has ended, or until a line matches."""
    from torchyard.jobs.follow_logs import stream_logs

    async with aclosing(stream_logs(client, job, selection)) as lines:
        async for label, line in lines:
            show(label, line)
            if until is not None and until.search(line.text):
                return
    if until is not None:
        raise YardError(f"{job.qualified_name} has ended without a line that matches {until.pattern}", code="NoMatch")


async def _print(client: Client, job: JobHandle, selection: LogSelection, show: ShowLine) -> None:
    from torchyard.core.run.state import run_state
    from torchyard.jobs.log_stream import read_lines
    from torchyard.kube.job_lookup import pods_of_job

    pods = await pods_of_job(client, job)
    if not pods and run_state(job.object).done:  # the history of a plane has their logs
        raise YardError(f"{job.qualified_name} has ended and its pods are deleted", code="NotFound")
    if not pods:
        raise YardError(
            f"{job.qualified_name} has no pods",
            hint=f"`yard why {job.name}` says why; -f waits until they start",
            code="NoPods",
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
                    show(label, line)
            except StatusError as error:
                if error.status != 400:  # 400: the container has not started, or has no earlier log
                    raise
                typer.echo(f"[{label}] no log: {error.message}", err=True)


class LinePrinter:
    """Prints the lines that match, in the format that was asked for."""

    def __init__(self, selection: LogSelection, output: Output, *, quiet: bool) -> None:
        self._pattern, self._output, self._quiet = selection.pattern, output, quiet
        self._named: set[str] = set()

    def __call__(self, label: str, line: LogLine) -> None:
        if line.overwritten or not self._pattern.search(line.text):
            return
        match self._output:
            case Output.json:
                say(json.dumps({"replica": label, "text": line.text}))
            case Output.yaml:
                import yaml

                say(yaml.safe_dump([{"replica": label, "text": line.text}], sort_keys=False).rstrip())
            case Output.name:
                if label not in self._named:
                    self._named.add(label)
                    say(label)
            case _:
                say(line.text if self._quiet else f"[{label}] {line.text}")
