"""`yard rerun JOB`: the same job again under another name, also with other arguments."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.job_arguments import JobName
from torchyard.cli.output import Output, OutputOption, Quiet
from torchyard.cli.run import show_objects
from torchyard.cli.run_options import DryRunMode, DryRunOption, OnInterrupt, SessionOptions
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.kube.client import Client


@with_cluster
def rerun(
    cluster: Cluster,
    job: JobName,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="Other arguments of the program, after --.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change an option (lr=0.1), a variable (NCCL_DEBUG=INFO) or a field (spec.PATH=VALUE). Repeatable.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the new job. Default: that of the job and a suffix.")] = "",
    dry_run: DryRunOption = DryRunMode.none,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the job.")] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run a job again under another name, from the cluster or from the history, and exit with its exit code.

    Examples: yard rerun mnist; yard rerun mnist --set lr=0.01; yard rerun mnist -- --epochs 3
    """
    from torchyard.cli.run_session import run_objects
    from torchyard.core.run.program import set_arguments, set_value

    objects = cluster.run(lambda client: _copy(client, cluster, job, name))
    *_, copied = objects
    if arguments:
        set_arguments(copied, arguments)
    for change in changes or ():
        set_value(copied, change)
    chosen = Output.name if quiet else output
    if dry_run is DryRunMode.client:
        show_objects(objects, chosen)
        raise typer.Exit
    options = SessionOptions(cluster.namespace, OnInterrupt.leave, dry_run=dry_run, detach=detach, output=chosen)
    raise typer.Exit(asyncio.run(run_objects(cluster.connection, objects, "", options)))


async def _copy(client: Client, cluster: Cluster, job: str, name: str) -> list[Object]:
    """The job under its new name, behind the files of its script, if it has any."""
    from torchyard.api.gvr import CONFIG_MAPS
    from torchyard.core.run.program import pod_specs
    from torchyard.core.run.rerun import base_name, renamed_job
    from torchyard.core.run.script_job import workspace_name, workspace_parts
    from torchyard.jobs.past_jobs import find_run
    from torchyard.jobs.scripts import random_suffix

    record = await find_run(client, cluster, job)
    original = record["object"]
    new_name = name or f"{base_name(record['name'])}-{random_suffix()}"
    copied = renamed_job(original, new_name)
    files: list[Object] = []
    for part in range(max(workspace_parts(spec) for spec in pod_specs(copied))):
        earlier = await client.find(CONFIG_MAPS, workspace_name(record["name"], part), record["namespace"])
        if earlier is None:
            raise YardError(
                f"the files of {record['name']} were deleted with it",
                hint="run the script again with `yard run`",
                code="FilesGone",
            )
        metadata = {"name": workspace_name(new_name, part), "namespace": record["namespace"]}
        content = {"metadata": metadata, "binaryData": earlier["binaryData"]}
        files.append({"apiVersion": "v1", "kind": "ConfigMap", **content})
    return [*files, copied]
