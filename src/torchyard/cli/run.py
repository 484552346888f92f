"""`yard run TARGET`: runs a manifest or a script, follows the jobs it starts, and exits with their exit code."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from torchyard.api import manifests
from torchyard.api.errors import YardError
from torchyard.cli.option_groups import with_groups
from torchyard.cli.options import is_interactive, say
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records
from torchyard.cli.run_options import DryRunMode, DryRunOption, OnInterrupt, SessionOptions
from torchyard.cli.script_options import refuse_script_options, script_options
from torchyard.cli.target import Cluster, choose_cluster
from torchyard.core.run.script_job import ScriptJob

if TYPE_CHECKING:
    from torchyard.api.objects import Object

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Manifest of jobs of any kind, a Python script or MODULE:FUNCTION; - reads stdin.",
    ),
]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="Arguments of the script, after --.")
]


@with_groups(script=script_options, cluster=choose_cluster)
def run(
    script: ScriptJob,
    cluster: Cluster,
    target: Target,
    arguments: Arguments = None,
    on_interrupt: Annotated[
        OnInterrupt, typer.Option(help="On Ctrl-C, leave the job running or delete it.")
    ] = OnInterrupt.leave,
    replace_job: Annotated[
        bool,
        typer.Option(
            "--replace", help="First delete a job of the same name that has finished or cannot be changed in place."
        ),
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what would change on the cluster, and exit.")] = False,
    dry_run: DryRunOption = DryRunMode.none,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="On a terminal, do not ask before the plan is run.")] = False,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the job.")] = False,
    notify: Annotated[
        str,
        typer.Option(
            metavar="URL|COMMAND",
            help="Tell it how the job ended: JSON by POST, or YARD_JOB, YARD_STATE and YARD_EXIT_CODE of a command.",
        ),
    ] = "",
    dependencies: Annotated[
        bool, typer.Option("--deps/--no-deps", help="Script: install the packages that it needs and the image lacks.")
    ] = True,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run a manifest or a script, follow its job with the logs of all replicas, and exit with the job's exit code.

    A script, or a function as MODULE:FUNCTION, runs as a PyTorchJob with the files of the current directory. The
    packages it needs come from its inline metadata (PEP 723), uv.lock, requirements.txt or pyproject.toml, the first
    that exists. --dry-run and --diff install nothing. On a terminal, the plan is shown before it is run.

    With -o json|yaml|name or -q, standard output has one record for each job when the command ends; logs and states
    are on standard error.

    Examples: yard run job.yaml; yard run train.py --nodes 4 -- --lr 0.1; yard run train:main -- --lr 0.1
    """
    is_dry = dry_run is not DryRunMode.none
    objects, text = read_target(
        target, script, arguments, cluster, dependencies=dependencies, may_install=not (diff or is_dry)
    )
    if notify and (detach or diff or is_dry):
        raise YardError(
            "--notify needs a job that is followed", hint="leave out --detach, --diff and --dry-run", code="BadOption"
        )
    if on_interrupt is OnInterrupt.delete and detach:
        raise YardError("--on-interrupt needs a job that is followed", hint="leave out --detach", code="BadOption")
    chosen = Output.name if quiet else output
    if dry_run is DryRunMode.client:
        show_objects(objects, chosen)
        raise typer.Exit
    options = SessionOptions(
        cluster.namespace,
        on_interrupt,
        replace=replace_job,
        diff=diff,
        dry_run=dry_run,
        detach=detach,
        notify=notify,
        output=chosen,
        confirm=not (yes or diff or is_dry or for_programs(chosen)) and is_interactive(),
    )
    raise typer.Exit(run_target(cluster, objects, text, options))


def show_objects(objects: list[Object], output: Output) -> None:
    """Print the objects of a run as they would be sent."""
    import yaml

    from torchyard.core.run.script_job import without_noise

    shown = [without_noise(obj) for obj in objects]
    if for_programs(output):
        records = [{"name": _qualified_name(obj), "object": obj} for obj in shown]
        show_records(records, output, columns={}, empty="")
    else:
        say(yaml.safe_dump_all(shown, sort_keys=False).rstrip())


def _qualified_name(obj: Object) -> str:
    """The name as kubectl prints it; a name that the server will generate ends with a hyphen."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = obj["kind"].lower() + (f".{group}" if group else "")
    return f"{kind}/{obj['metadata'].get('name') or obj['metadata'].get('generateName', '')}"


class TargetObjects(NamedTuple):
    """The objects of a target, and its text if it is a manifest."""

    objects: list[Object]
    text: str = ""


def read_target(
    target: str,
    script: ScriptJob,
    arguments: list[str] | None,
    cluster: Cluster,
    *,
    dependencies: bool = True,
    may_install: bool = True,
) -> TargetObjects:
    """The objects that a script or a manifest stands for. `may_install`: with its packages on this machine."""
    from torchyard.jobs.scripts import is_script_target, script_manifest

    if is_script_target(target):
        job = replace(script, script=target, arguments=tuple(arguments or ()))
        return TargetObjects(script_manifest(job, cluster, dependencies=dependencies, may_install=may_install))
    refuse_script_options(target, script, arguments)
    text = _read(target)
    return TargetObjects(manifests.read(text, "standard input" if target == "-" else target), text)


def run_target(cluster: Cluster, objects: list[Object], text: str, options: SessionOptions) -> int:
    """Carry out a run and return its exit code."""
    from torchyard.cli.run_session import run_objects

    return asyncio.run(run_objects(cluster.connection, objects, text, options))


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except IsADirectoryError:
        raise YardError(
            f"cannot read {file or 'the target'}: it is a directory",
            hint="name a manifest, a script or a MODULE:FUNCTION in it",
            code="BadOption",
        ) from None
    except OSError as error:
        script, _, function = file.rpartition(":")
        module = script.removesuffix(".py").replace("/", ".")
        hint = f"for a function of a script: yard run {module}:{function}" if script.endswith(".py") else ""
        raise YardError(f"cannot read {file}: {error.strerror}", hint=hint, code="NotFound") from error
    except UnicodeDecodeError:
        raise YardError(
            f"cannot read {file}: it is not a text file", hint="pass a manifest in YAML or JSON", code="BadManifest"
        ) from None
