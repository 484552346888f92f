"""`yard compare JOB JOB`: what two or more jobs were started with, and what came out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, show_records, table_lines
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.core.run.record import RunRecord
    from torchyard.kube.client import Client

_ELSEWHERE = "(from elsewhere)"
_NUMBER = re.compile(r"[\d.eE+-]+")


@with_cluster
def compare(
    cluster: Cluster,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB JOB...", help="Names of jobs, also of ended ones.")],
    everything: Annotated[bool, typer.Option("--all", help="Also what is equal.")] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Compare jobs: options, environment, image, resources, how they ended, and the last metrics in their logs.

    A metric is a number with a name in a line of the first replica, such as `loss=0.25` or `accuracy: 91%`.
    Values that look like tokens, passwords or keys are not shown.

    Example: yard compare mnist mnist-x7k2p
    """
    output = Output.name if quiet else output
    if len(jobs) < 2:
        raise YardError("two jobs are needed for a comparison", hint="yard compare JOB JOB", code="BadOption")

    async def work(client: Client) -> list[dict[str, Any]]:
        from torchyard.jobs.past_jobs import find_run

        records = [await find_run(client, cluster, job) for job in jobs]
        return [await _described(client, cluster, record) for record in records]

    described = cluster.run(work)
    if output not in (Output.table, Output.wide):
        show_records(described, output, columns={}, empty="")
        return
    flat = [_flat(job) for job in described]
    names = list(dict.fromkeys(name for fields in flat for name in fields))
    rows = [[name, *(fields.get(name, "") for fields in flat)] for name in names]
    shown = [row for row in rows if everything or row[0].startswith("metric ") or len(set(row[1:])) > 1]
    for line in table_lines([["", *(job["name"] for job in described)], *shown]):
        say(line)
    if not shown:
        say("they have the same options, environment and outcome; --all shows them")


async def _described(client: Client, cluster: Cluster, record: RunRecord) -> dict[str, Any]:
    from torchyard.core.run.metrics import last_metrics
    from torchyard.core.run.program import pod_specs, program_options
    from torchyard.jobs.past_jobs import read_first_log
    from torchyard.yard.history import duration_seconds

    container = pod_specs(record["object"])[0]["containers"][0]
    return {
        "name": record["name"],
        "state": record["state"],
        "exitCode": record["exitCode"],
        "durationSeconds": round(duration_seconds(record), 1),
        "gpuHours": round(record["gpuSeconds"] / 3600, 2),
        "replicas": len(record["replicas"]),
        "image": container.get("image", ""),
        "options": redacted(program_options(record["object"])),
        "environment": redacted(
            {variable["name"]: variable.get("value", _ELSEWHERE) for variable in container.get("env") or ()}
        ),
        "resources": (container.get("resources") or {}).get("limits") or {},
        "metrics": last_metrics(await read_first_log(client, cluster, record)),
    }


def redacted(values: dict[str, str]) -> dict[str, str]:
    """Without tokens, passwords and keys: agents read comparisons, and people paste them."""
    from torchyard.yard.bug_report import redact

    def shown(name: str, value: str) -> str:
        # tokenizers and numbers of tokens are what people compare
        plain = re.sub(r"(?i)tokeni[sz]\w*" + (r"|tokens" if _NUMBER.fullmatch(value) else ""), "", name)
        is_secret = redact(f"{plain}=x") != f"{plain}=x"
        return "(redacted)" if is_secret and value != _ELSEWHERE else redact(value)

    return {name: shown(name, value) for name, value in values.items()}


def _flat(job: dict[str, Any]) -> dict[str, str]:
    """One cell for each field; the metrics last."""
    prefixes = {"options": "", "environment": "env ", "resources": "limit ", "metrics": "metric "}
    cells = {key: "" if value is None else str(value) for key, value in job.items() if key not in (*prefixes, "name")}
    for key, prefix in prefixes.items():
        cells |= {f"{prefix}{name}": _text(value) for name, value in job[key].items()}
    return cells


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
