"""How commands name a job, one of its replicas and a container."""

from __future__ import annotations

from typing import Annotated

import typer

from torchyard.cli.completion import complete_jobs

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Name of a job; KIND/NAME if jobs of several kinds have it.",
        autocompletion=complete_jobs,
    ),
]

JobNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Names of jobs; KIND/NAME if jobs of several kinds have it. Default: all.",
        autocompletion=complete_jobs,
    ),
]

Rank = Annotated[
    str, typer.Option("--rank", metavar="RANK", help="A rank, or a replica such as worker-0. Default: the first.")
]
Container = Annotated[
    str, typer.Option("-c", "--container", metavar="NAME", help="A container. Default: the pod's default container.")
]
