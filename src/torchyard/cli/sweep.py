"""`yard sweep SCRIPT`: a script with every combination of options, as one Indexed Job, and a table of the results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.option_groups import with_groups
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, show_records
from torchyard.cli.run import Arguments, run_target
from torchyard.cli.run_options import OnInterrupt, SessionOptions
from torchyard.cli.script_options import script_options
from torchyard.cli.target import Cluster, choose_cluster
from torchyard.core.run.script_job import ScriptJob

if TYPE_CHECKING:
    from torchyard.core.run.record import RunRecord
    from torchyard.core.run.sweep import Combination
    from torchyard.kube.client import Client


@with_groups(script=script_options, cluster=choose_cluster)
def sweep(
    script: ScriptJob,
    cluster: Cluster,
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT|JOB", help="A Python script, or a sweep whose results to show.")
    ],
    arguments: Arguments = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME=VALUE,...", help="Values of an option. Repeatable: all combinations run."),
    ] = None,
    parallel: Annotated[int, typer.Option(min=0, metavar="N", help="How many run at once; 0: all.")] = 0,
    sort: Annotated[str, typer.Option(metavar="METRIC", help="Sort the results by a metric, the lowest first.")] = "",
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the job.")] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run a script once for every combination of options, and show the last metrics of each run.

    The runs are the indexes of one Job: queues and quota apply to it. `yard sweep JOB` shows the results so far.

    Example: yard sweep train.py --grid lr=0.1,0.01 --grid batch-size=32,64 --parallel 2 -- --epochs 1
    """
    from torchyard.jobs.scripts import is_script_target, prepare_script

    output = Output.name if quiet else output
    if not is_script_target(target):
        if grid or arguments or parallel or detach or script != ScriptJob(name="", script="", image=""):
            raise YardError(
                f"{target} is not a script: only --sort, -o and -q apply to the results of a sweep",
                hint="to run one, pass a file that ends in .py",
                code="BadOption",
            )
        _show_results(cluster, target, sort, output)
        return
    if not grid:
        raise YardError("a sweep needs a grid", hint="pass for example --grid lr=0.1,0.01", code="BadOption")
    if script.nodes > 1:
        raise YardError("a sweep runs each combination on one pod", hint="leave out --nodes", code="BadOption")
    if script.elastic:
        raise YardError("a sweep runs each combination on one pod", hint="leave out --elastic", code="BadOption")
    from torchyard.core.run.sweep import grid as combine
    from torchyard.core.run.sweep import sweep_objects

    named, workspace = prepare_script(replace(script, script=target, arguments=tuple(arguments or ())), cluster)
    combinations = combine(grid)
    if output in (Output.table, Output.wide):
        say(f"{len(combinations)} combinations")
    # a sweep that is followed prints its results, one that is not the record of its job
    options = SessionOptions(cluster.namespace, OnInterrupt.leave, detach=detach, output=output, has_results=not detach)
    code = run_target(cluster, sweep_objects(named, workspace, combinations, parallel), "", options)
    if not detach:
        _show_results(cluster, named.name, sort, output)
    elif not options.for_programs:
        say(f"its results: yard sweep {named.name}")
    raise typer.Exit(code)


def _show_results(cluster: Cluster, name: str, sort: str, output: Output) -> None:
    from torchyard.core.run.sweep import combinations_of

    async def work(client: Client) -> list[dict[str, Any]]:
        from torchyard.jobs.past_jobs import find_run

        record = await find_run(client, cluster, name)
        combinations = combinations_of(record["object"])
        if not combinations:
            raise YardError(f"{name} is not a sweep", hint="`yard compare` compares jobs", code="BadOption")
        return [await _result(client, cluster, record, index, chosen) for index, chosen in enumerate(combinations)]

    results = cluster.run(work)
    known = sorted({name for result in results for name in result["metrics"]})
    if sort and known and sort not in known:
        hint = f"there are {', '.join(known)}"
        raise YardError(f"--sort {sort}: no run has this metric", hint=hint, code="BadOption")
    if sort:
        results.sort(key=lambda result: _sort_key(result["metrics"].get(sort, math.nan)))
    options = {f"option {key}": f"--{key}" for result in results for key in result["options"]}
    metrics = {f"metric {key}": key for result in results for key in result["metrics"]}
    rows = [
        {
            **result,
            **{f"option {key}": value for key, value in result["options"].items()},
            **{f"metric {key}": value for key, value in result["metrics"].items()},
        }
        for result in results
    ]
    records = results if output in (Output.json, Output.yaml) else rows
    show_records(
        records,
        output,
        columns={"index": "INDEX", **options, "state": "STATE", "exitCode": "EXIT", **metrics},
        empty="",
    )


def _sort_key(value: float) -> tuple[bool, float]:
    """The lowest first, no number last."""
    return (True, 0.0) if math.isnan(value) else (False, value)


async def _result(
    client: Client, cluster: Cluster, record: RunRecord, index: int, combination: Combination
) -> dict[str, Any]:
    from torchyard.core.run.metrics import last_metrics
    from torchyard.jobs.past_jobs import read_pod_log

    replica = next((replica for replica in record["replicas"] if replica["rank"] == index), None)
    lines = await read_pod_log(client, cluster, record, replica["pod"]) if replica else []
    return {
        "name": f"{record['name']}-{index}",
        "index": index,
        "options": combination,
        "state": replica["phase"] if replica else "Pending",
        "exitCode": replica["exitCode"] if replica else None,
        "metrics": last_metrics(lines),
    }
