"""`yard run FILE`: applies a manifest, follows the jobs it starts, and exits with their exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api import manifests
from torchyard.api.errors import StatusError, YardError
from torchyard.api.objects import Object
from torchyard.cli.options import State
from torchyard.cli.target import Context, Kubeconfig, choose_connection

if TYPE_CHECKING:
    from torchyard.api.group_version import GroupVersionResource
    from torchyard.cli.screen import Screen
    from torchyard.kube.client import Client
    from torchyard.kube.kubeconfig import Connection

INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


class OnInterrupt(StrEnum):
    leave = "leave"
    delete = "delete"


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Manifest with a PyTorchJob, Job or Pod; - reads standard input.")
    ],
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of objects that do not name one.")
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
    state: State = None,
) -> None:
    """Apply FILE, follow the job with the logs of all replicas, and exit with the job's exit code."""
    text = _read(file)
    objects = manifests.read(text, "standard input" if file == "-" else file)
    connection = choose_connection(kubeconfig, context, state)
    exit_code = asyncio.run(
        _run(connection, objects, text, namespace, on_interrupt=on_interrupt, replace=replace, diff=diff)
    )
    raise typer.Exit(exit_code)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise YardError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise YardError(f"cannot read {file}: it is not a text file", hint="pass a manifest in YAML or JSON") from None


async def _run(
    connection: Connection,
    objects: list[Object],
    text: str,
    namespace: str,
    *,
    on_interrupt: OnInterrupt,
    replace: bool,
    diff: bool,
) -> int:
    from torchyard.cli.screen import create_screen
    from torchyard.kube.connect import open_client

    running: list[tuple[GroupVersionResource, Object]] = []
    async with open_client(connection, "yard-run") as client:
        screen = create_screen()
        space = namespace or connection.namespace
        work = asyncio.ensure_future(
            _show_diff(client, objects, space, screen)
            if diff
            else _apply_and_follow(client, objects, space, running, screen, replace)
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            await _handle_interrupt(client, running, screen, on_interrupt)
            return INTERRUPTED
        except StatusError as error:
            shifts = manifests.find_misplaced_lines(text)
            if error.status in (400, 422) and shifts:
                raise YardError(
                    f"{error.message}\nlikely cause: {shifts[0]}", hint=manifests.indentation_hint(shifts)
                ) from error
            raise
        finally:
            screen.close()


async def _show_diff(client: Client, objects: list[Object], namespace: str, screen: Screen) -> int:
    from torchyard.cli.apply import locate, plan, qualified_name

    for obj in objects:
        planned = await plan(client, await locate(client, obj, namespace), replace=True)
        named = {**obj, "metadata": {"name": obj["metadata"].get("generateName", ""), **obj["metadata"]}}
        screen.note(f"{qualified_name(planned.target.gvr, named)} would be {planned.action}")
        if planned.diff:
            screen.note(planned.diff)
    return 0


async def _apply_and_follow(
    client: Client,
    objects: list[Object],
    namespace: str,
    running: list[tuple[GroupVersionResource, Object]],
    screen: Screen,
    replace: bool,
) -> int:
    from torchyard.cli.apply import apply, locate, plan, qualified_name
    from torchyard.cli.follow import Follower
    from torchyard.core.run.failure import exit_code
    from torchyard.core.run.state import RUNNABLE

    for obj in objects:
        planned = await plan(client, await locate(client, obj, namespace), replace=replace)
        gvr, applied = await apply(client, planned)
        screen.note(f"{qualified_name(gvr, applied)} {'unchanged' if planned.action == 'unchanged' else 'applied'}")
        if applied["kind"] in RUNNABLE:
            running.append((gvr, applied))
    if not running:
        screen.note("the manifest has no PyTorchJob, Job or Pod to wait for")
        return 0
    results = await asyncio.gather(*(Follower(client, gvr, obj, screen).run() for gvr, obj in running))
    code = 0
    for (gvr, obj), (result, failure) in zip(running, results, strict=True):
        message = f": {result.message}" if result.message else ""
        screen.note(f"{qualified_name(gvr, obj)} {result.state}{message}")
        if failure is not None:
            screen.note(f"first to fail: {failure} at {failure.at}")
        code = code or exit_code(result, failure)
    return code


async def _handle_interrupt(
    client: Client, running: list[tuple[GroupVersionResource, Object]], screen: Screen, on_interrupt: OnInterrupt
) -> None:
    from torchyard.cli.apply import qualified_name

    for gvr, obj in running:
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
        if on_interrupt is OnInterrupt.delete:
            await client.delete(gvr, name, namespace, uid=obj["metadata"]["uid"])
            screen.note(f"{qualified_name(gvr, obj)} deleted")
        else:
            options = "" if namespace == "default" else f" -n {namespace}"
            screen.note(f"{qualified_name(gvr, obj)} keeps running")
            screen.note(f"follow it with: yard logs -f{options} {name}; delete it with: yard delete{options} {name}")
