"""`yard logs JOB`: the logs of all replicas of a job, each line with its replica in front."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import StatusError, YardError
from torchyard.cli.job_arguments import JobName
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet
from torchyard.cli.printable import log_text
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.core.run.line_splitter import LogLine
    from torchyard.core.run.record import RunRecord
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
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="Only lines newer than 30s, 5m or 2h; with -f, and what comes.")
    ] = "",
    tail: Annotated[
        int, typer.Option(min=-1, metavar="LINES", help="Only the last lines of each replica; with -f, and what comes.")
    ] = -1,
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

    if follow and previous:
        raise YardError("--previous shows a log that has ended", hint="leave out -f", code="BadOption")
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

    end = _compile("--until", until) if until else None
    may_be_kept = True  # in the history of a plane: of a job that is deleted or has ended

    async def show(client: Client, chosen: JobHandle) -> RunRecord | None:
        """Show the logs of the pods. Returns the record of a job whose pods were deleted when it was suspended."""
        from torchyard.core.run.state import run_state
        from torchyard.jobs.past_jobs import suspended_record
        from torchyard.kube.job_lookup import pods_of_job

        nonlocal may_be_kept
        may_be_kept = run_state(chosen.object).done
        pods = await pods_of_job(client, chosen)
        if not pods and may_be_kept:  # the history of a plane has their logs
            raise YardError(f"{chosen.qualified_name} has ended and its pods are deleted", code="NotFound")
        if not pods and not follow:
            return await suspended_record(client, chosen)
        await (_follow(client, chosen, selection, printer, end) if follow else _print(client, chosen, pods, printer))
        return None

    try:
        record = cluster.run_with_job(job, show)
    except YardError as error:
        if error.code != "NotFound" or not may_be_kept:
            raise
        from torchyard.jobs.past_jobs import find_recorded

        record = find_recorded(cluster, job, error)
    else:
        if record is None:
            return
        _require_kept_logs(cluster, job, record)
    _print_recorded(cluster, record, printer, end)


def _require_kept_logs(cluster: Cluster, job: str, record: RunRecord) -> None:
    """The logs of a suspended job are those of its last pods, where a plane has kept them."""
    from torchyard.jobs.past_jobs import kept_logs

    if not kept_logs(cluster, record):
        hint = f"`yard why {job}` says why; -f waits until they start"
        raise YardError(f"{record['kind']} {record['name']} has no pods", hint=hint, code="NoPods")
    typer.echo(f"-- {record['name']} has no pods: the last logs of those that were deleted --", err=True)


def _print_recorded(cluster: Cluster, record: RunRecord, printer: LinePrinter, until: re.Pattern[str] | None) -> None:
    from torchyard.jobs.past_jobs import print_recorded_logs

    if printer.selection.previous:
        raise YardError(
            f"the pods of {record['name']} were deleted: only the last log of each of their containers is kept",
            hint="leave out --previous",
            code="BadOption",
        )

    def show(label: str, line: LogLine) -> None:
        printer(label, line)
        if until is not None and until.search(line.text):
            raise _MatchedError

    try:
        print_recorded_logs(cluster, record, printer.selection, show)
    except _MatchedError:
        return
    if until is not None:
        raise _no_match(record["name"], until)


class _MatchedError(Exception):
    """The line of --until was shown."""


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
        raise _no_match(job.qualified_name, until)


def _no_match(job: str, until: re.Pattern[str]) -> YardError:
    return YardError(f"{job} has ended without a line that matches {until.pattern}", code="NoMatch")


async def _print(client: Client, job: JobHandle, pods: list[Object], show: LinePrinter) -> None:
    from torchyard.core.run.state import short_name
    from torchyard.jobs.log_stream import read_lines

    selection = show.selection
    for pod in selection.pods(pods, job.name):
        if not pod["spec"].get("nodeName"):  # its log is empty, without an error
            hint = f"`yard why {job.name}` says why; -f waits until it starts"
            typer.echo(f"[{short_name(pod['metadata']['name'], job.name)}] no log: it has no node; {hint}", err=True)
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
    """Prints the lines of a selection that match, in the format that was asked for."""

    def __init__(self, selection: LogSelection, output: Output, *, quiet: bool) -> None:
        self.selection, self._output, self._quiet = selection, output, quiet
        self._named: set[str] = set()
        self._is_terminal = sys.stdout.isatty()

    def __call__(self, label: str, line: LogLine) -> None:
        if line.overwritten or not self.selection.pattern.search(line.text):
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
                text = log_text(line.text, colours="NO_COLOR" not in os.environ) if self._is_terminal else line.text
                say(text if self._quiet else f"[{label}] {text}")
