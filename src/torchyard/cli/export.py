"""`yard export JOB`: the metrics of jobs for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.output import Output, OutputOption, Quiet, show_records
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.kube.client import Client

_COLUMNS = {"name": "NAME", "replica": "REPLICA", "points": "POINTS", "metrics": "METRICS", "file": "FILE"}


@with_cluster
def export(
    cluster: Cluster,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Names of jobs, also of ended and deleted ones.")],
    tensorboard: Annotated[
        Path, typer.Option(metavar="DIR", help="Write files for TensorBoard, in a directory for each job and replica.")
    ],
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Write the metrics in the logs of jobs as files for TensorBoard.

    A metric is a number with a name in a line, such as `loss=0.25`; its step is the one that the line names, such as
    `step 3/100`, or else the number of the line with metrics. A second export replaces the files of the first.

    TensorBoard shows them with its option logdir set to the same directory.

    Example: yard export mnist mnist-x7k2p --tensorboard runs
    """

    async def work(client: Client) -> list[dict[str, Any]]:
        return [row for job in jobs for row in await _export(client, cluster, job, tensorboard)]

    rows = cluster.run(work)
    if not rows:
        raise YardError(
            f"no metric in the logs of {', '.join(jobs)}", hint="print them as name=number", code="NoMetrics"
        )
    show_records(rows, Output.name if quiet else output, columns=_COLUMNS, empty="")


async def _export(client: Client, cluster: Cluster, job: str, directory: Path) -> list[dict[str, Any]]:
    from torchyard.core.run.tensorboard import event_file, metric_points
    from torchyard.jobs.past_jobs import find_run, read_pod_log

    record = await find_run(client, cluster, job)
    rows = []
    for replica in record["replicas"]:
        points = metric_points(await read_pod_log(client, cluster, record, replica["pod"], timestamps=True))
        if not points:
            continue
        file = directory / record["name"] / replica["name"] / f"events.out.tfevents.{int(points[0].time)}.torchyard"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(event_file(points))
        names = dict.fromkeys(name for point in points for name in point.metrics)
        rows.append(
            {
                "name": record["name"],
                "replica": replica["name"],
                "points": len(points),
                "metrics": ", ".join(names),
                "file": str(file),
            }
        )
    return rows
