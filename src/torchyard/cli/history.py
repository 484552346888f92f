"""`yard history`: the jobs that have ended, also those that were deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, show_records, table_lines
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.core.run.record import RunRecord
    from torchyard.kube.client import Client

_COLUMNS = {
    "name": "NAME",
    "kind": "KIND",
    "state": "STATE",
    "exitCode": "EXIT",
    "replicaCount": "REPLICAS",
    "duration": "DURATION",
    "gpuHours": "GPU-HOURS",
    "age": "ENDED",
}


@with_cluster
def history(
    cluster: Cluster,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Show how this job and each of its replicas ended.")] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Only jobs that ended within 30m, 12h or 7d.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The last N jobs.")] = 50,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """List the jobs that have ended, the last first.

    A plane keeps them and their logs for 30 days (`yard up --history-days`), also after they were deleted.
    A cluster has only those that still exist.

    Examples: yard history --since 7d; yard history mnist; yard logs mnist
    """
    from torchyard.jobs.past_jobs import find_run, list_runs

    output = Output.name if quiet else output
    if job and (all_namespaces or since):
        raise YardError(
            f"{job} is one job: --all-namespaces and --since choose among several",
            hint="leave them out, or leave out the job; -n names its namespace",
            code="BadOption",
        )
    if job:
        record = cluster.run(lambda client: find_run(client, cluster, job))
        _show_run(record, output)
        return

    async def work(client: Client) -> list[RunRecord]:
        return await list_runs(client, cluster, "" if all_namespaces else cluster.namespace)

    records = [_row(record) for record in cluster.run(work) if not since or _ended_within(record, since)][:limit]
    columns = {**({"namespace": "NAMESPACE"} if all_namespaces else {}), **_COLUMNS}
    columns |= {"message": "MESSAGE"} if output is Output.wide else {}
    show_records(records, output, columns=columns, empty="no job has ended")


def _ended_within(record: RunRecord, since: str) -> bool:
    from torchyard.api.times import parse_rfc3339
    from torchyard.jobs.log_selection import parse_since

    return datetime.now(UTC) - parse_rfc3339(record["ended"]) <= timedelta(seconds=parse_since(since))


def _row(record: RunRecord) -> dict[str, Any]:
    from torchyard.api.times import human_duration, parse_rfc3339
    from torchyard.yard.history import duration_seconds

    seconds = duration_seconds(record)
    return {
        **{key: value for key, value in record.items() if key not in ("object", "gpuSeconds", "unfinished")},
        "ended": "" if record.get("unfinished") else record["ended"],
        "replicaCount": len(record["replicas"]),
        "durationSeconds": seconds,
        "duration": human_duration(timedelta(seconds=seconds)),
        "gpuHours": round(record["gpuSeconds"] / 3600, 2),
        "age": f"{human_duration(datetime.now(UTC) - parse_rfc3339(record['ended']))} ago",
    }


def _show_run(record: RunRecord, output: Output) -> None:
    row = _row(record)
    if output not in (Output.table, Output.wide):
        show_records([row], output, columns={}, empty="")
        return
    message = f": {record['message']}" if record["message"] else ""
    say(f"{record['kind']} {record['namespace']}/{record['name']} {record['state']}{message}")
    end = f"ended {row['ended']}" if row["ended"] else "has not ended"
    say(f"created {record['created']}, {end}, {row['duration']}, {row['gpuHours']:g} GPU-hours")
    if record["replicas"]:
        cells = [["REPLICA", "PHASE", "EXIT", "REASON", "STARTED", "FINISHED"]]
        for replica in record["replicas"]:
            code = "" if replica["exitCode"] is None else str(replica["exitCode"])
            cells.append(
                [replica["name"], replica["phase"], code, replica["reason"], replica["started"], replica["finished"]]
            )
        for line in table_lines(cells):
            say(line)
    say(f"its logs: yard logs {record['name']}")
