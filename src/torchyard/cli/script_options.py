"""The options of commands that run a script."""

from __future__ import annotations

from typing import Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.core.run.script_job import ScriptJob


def script_options(
    name: Annotated[str, typer.Option(help="Script: name of the job. Default: that of the file and a suffix.")] = "",
    image: Annotated[str, typer.Option(help="Script: image. Default: pytorch/pytorch:latest.")] = "",
    nodes: Annotated[int, typer.Option(min=1, help="Script: number of pods.")] = 1,
    nproc: Annotated[
        int, typer.Option(min=1, help="Script: number of processes of each pod, started by torchrun.")
    ] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="Script: GPUs of each pod.")] = 0,
    cpu: Annotated[str, typer.Option(metavar="QUANTITY", help="Script: CPUs of each pod, such as 2 or 500m.")] = "",
    memory: Annotated[str, typer.Option(metavar="QUANTITY", help="Script: memory of each pod, such as 4Gi.")] = "",
    env: Annotated[
        list[str] | None, typer.Option("-e", "--env", metavar="NAME=VALUE", help="Script: environment. Repeatable.")
    ] = None,
    queue: Annotated[str, typer.Option(metavar="NAME", help="Script: LocalQueue to wait in.")] = "",
    priority: Annotated[str, typer.Option(metavar="NAME", help="Script: WorkloadPriorityClass; needs --queue.")] = "",
    elastic: Annotated[
        str, typer.Option(metavar="MIN:MAX", help="Script: an elastic training with so many pods (torchyard.elastic).")
    ] = "",
) -> ScriptJob:
    """A job without its script."""
    return ScriptJob(
        name=name,
        script="",
        image=image,
        nodes=nodes,
        processes=nproc,
        gpus=gpus,
        cpu=cpu,
        memory=memory,
        env=_parse_env(env or []),
        queue=queue,
        priority=priority,
        elastic=_parse_elastic(elastic) if elastic else None,
    )


def refuse_script_options(target: str, script: ScriptJob, arguments: list[str] | None) -> None:
    """Raise YardError if an option of scripts was passed for a manifest."""
    if arguments or script != ScriptJob(name="", script="", image=""):
        raise YardError(
            f"{target} is a manifest: --name, --image, --nodes and the other options of scripts do not apply to it",
            hint="set the fields in the manifest, or pass a file that ends in .py",
            code="BadOption",
        )


def _parse_elastic(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    is_number = all(part.isascii() and part.isdigit() and len(part) < 10 for part in (least, most))
    if not is_number or not 1 <= int(least) <= int(most):
        raise YardError(
            f"--elastic {text}: it is not MIN:MAX", hint="write for example --elastic 1:4", code="BadOption"
        )
    return int(least), int(most)


def _parse_env(variables: list[str]) -> dict[str, str]:
    for variable in variables:
        if not variable.partition("=")[0] or "=" not in variable:
            raise YardError(
                f"--env {variable}: it is not NAME=VALUE", hint="write for example --env LR=0.1", code="BadOption"
            )
    return {name: value for name, _, value in (variable.partition("=") for variable in variables)}
