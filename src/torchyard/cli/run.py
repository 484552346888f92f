"""`yard run FILE`: apply a manifest, follow what it starts, and end as that ends."""

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
from torchyard.cli.target import Context, Kubeconfig, chosen

if TYPE_CHECKING:
    from torchyard.api.group_version import GroupVersionResource
    from torchyard.cli.screen import Screen
    from torchyard.kube.client import Client
    from torchyard.kube.kubeconfig import Connection

INTERRUPTED = 130  # what a shell shows for a program that Ctrl-C ended


class OnInterrupt(StrEnum):
    leave = "leave"
    delete = "delete"


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A manifest with a PyTorchJob, Job or Pod; - reads stdin.")
    ],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where objects go that name no namespace.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    on_interrupt: Annotated[
        OnInterrupt, typer.Option(help="What Ctrl-C does with the job: leave it running, or delete it.")
    ] = OnInterrupt.leave,
    replace: Annotated[bool, typer.Option("--replace", help="Delete a job of this name that has ended.")] = False,
    state: State = None,
) -> None:
    """Apply FILE, show how it goes with the logs of all replicas, and exit as the job does."""
    text = _read(file)
    objects = manifests.read(text, "standard input" if file == "-" else file)
    found = chosen(kubeconfig, context, state)
    raise typer.Exit(asyncio.run(_run(found, objects, text, namespace, on_interrupt=on_interrupt, replace=replace)))


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise YardError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise YardError(f"cannot read {file}: it is no text", hint="name a manifest, in YAML or JSON") from None


async def _run(
    found: Connection, objects: list[Object], text: str, namespace: str, *, on_interrupt: OnInterrupt, replace: bool
) -> int:
    from torchyard.cli.screen import screen as make_screen
    from torchyard.kube.connect import open_client

    running: list[tuple[GroupVersionResource, Object]] = []
    async with open_client(found, "yard-run") as client:
        screen = make_screen()
        work = asyncio.ensure_future(
            _apply_and_follow(client, objects, namespace or found.namespace, running, screen, replace)
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            await _interrupted(client, running, screen, on_interrupt)
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


async def _apply_and_follow(
    client: Client,
    objects: list[Object],
    namespace: str,
    running: list[tuple[GroupVersionResource, Object]],
    screen: Screen,
    replace: bool,
) -> int:
    from torchyard.cli.apply import apply, called
    from torchyard.cli.follow import Follower
    from torchyard.core.run.outcome import RUNNABLE, exit_code

    for obj in objects:
        ref, made = await apply(client, obj, namespace, replace=replace)
        screen.note(f"{called(ref, made)} applied")
        if made["kind"] in RUNNABLE:
            running.append((ref, made))
    if not running:
        screen.note("nothing here runs pods: there is nothing to wait for")
        return 0
    ends = await asyncio.gather(*(Follower(client, ref, obj, screen).run() for ref, obj in running))
    code = 0
    for (ref, obj), (result, failure) in zip(running, ends, strict=True):
        words = f": {result.message}" if result.message else ""
        screen.note(f"{called(ref, obj)} {result.state}{words}")
        if failure is not None:
            why = f" ({failure.reason})" if failure.reason else ""
            screen.note(f"first to fail: {failure.pod}, exit code {failure.exit_code}{why} at {failure.at}")
        code = code or exit_code(result, failure)
    return code


async def _interrupted(
    client: Client, running: list[tuple[GroupVersionResource, Object]], screen: Screen, on_interrupt: OnInterrupt
) -> None:
    from torchyard.cli.apply import called

    for ref, obj in running:
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
        if on_interrupt is OnInterrupt.delete:
            await client.delete(ref, name, namespace, uid=obj["metadata"]["uid"])
            screen.note(f"{called(ref, obj)} deleted")
        else:
            screen.note(f"{called(ref, obj)} runs on; delete it with: kubectl delete -n {namespace} {called(ref, obj)}")
