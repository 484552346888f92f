"""`yard run TARGET`: runs a manifest or a script, follows the jobs it starts, and exits with their exit code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api import manifests
from torchyard.api.errors import YardError
from torchyard.cli.options import State
from torchyard.cli.run_options import OnInterrupt, RunOptions
from torchyard.cli.target import Context, Kubeconfig, choose_connection

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.kube.kubeconfig import Connection


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="Manifest with a PyTorchJob, Job or Pod, or a Python script; - reads a manifest."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="Arguments of the script, after --.")
    ] = None,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of objects that do not name one.")
    ] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    on_interrupt: Annotated[
        OnInterrupt, typer.Option(help="On Ctrl-C, leave the job running or delete it.")
    ] = OnInterrupt.leave,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="First delete a job of the same name that has finished or cannot be changed in place."
        ),
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what would change on the cluster, and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the server check the objects, print them, and exit.")
    ] = False,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the job.")] = False,
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
    priority: Annotated[str, typer.Option(metavar="NAME", help="Script: WorkloadPriorityClass.")] = "",
    state: State = None,
) -> None:
    """Run a manifest or a script, follow its job with the logs of all replicas, and exit with the job's exit code.

    A script runs as a PyTorchJob with the files of the current directory.

    Examples: yard run job.yaml; yard run train.py --nodes 4 -- --lr 0.1
    """
    text = ""
    if target.endswith(".py"):
        from torchyard.cli.run_script import script_manifest
        from torchyard.core.run.script_job import ScriptJob

        script = ScriptJob(
            name=name,
            script=target,
            arguments=tuple(arguments or ()),
            image=image,
            nodes=nodes,
            processes=nproc,
            gpus=gpus,
            cpu=cpu,
            memory=memory,
            env=_parse_env(env or []),
            queue=queue,
            priority=priority,
        )
        objects = script_manifest(script)
    else:
        _refuse_script_options(
            target, arguments, name, image, nodes != 1, nproc != 1, gpus, cpu, memory, env, queue, priority
        )
        text = _read(target)
        objects = manifests.read(text, "standard input" if target == "-" else target)
    options = RunOptions(namespace, on_interrupt, replace=replace, diff=diff, dry_run=dry_run, detach=detach)
    connection = choose_connection(kubeconfig, context, state)
    raise typer.Exit(_run(connection, objects, text, options))


def _refuse_script_options(target: str, *values: object) -> None:
    if any(values):
        raise YardError(
            f"{target} is a manifest: --name, --image, --nodes and the other options of scripts do not apply to it",
            hint="set the fields in the manifest, or pass a file that ends in .py",
        )


def _parse_env(variables: list[str]) -> dict[str, str]:
    for variable in variables:
        if not variable.partition("=")[0] or "=" not in variable:
            raise YardError(f"--env {variable}: it is not NAME=VALUE", hint="write for example --env LR=0.1")
    return {name: value for name, _, value in (variable.partition("=") for variable in variables)}


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise YardError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise YardError(f"cannot read {file}: it is not a text file", hint="pass a manifest in YAML or JSON") from None


def _run(connection: Connection, objects: list[Object], text: str, options: RunOptions) -> int:
    from torchyard.cli.run_session import run_objects

    return asyncio.run(run_objects(connection, objects, text, options))
