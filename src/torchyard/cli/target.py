"""Which cluster a command talks to, and a client of it for as long as the command runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from torchyard.kube.client import Client
    from torchyard.kube.kubeconfig import Connection

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig file. Default: kubectl's, or the service account of the pod."),
]
Context = Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: the current one.")]


def choose_connection(kubeconfig: Path | None, context: str, state: Path | None) -> Connection:
    """Return what the options name, else kubectl's choice, else the plane of this machine."""
    from torchyard.yard import target

    return target.resolve_connection(kubeconfig, context, state)


def run_with_client(connection: Connection, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, run `work` with the client, and return its result."""
    from torchyard.kube.connect import open_client

    async def run() -> T:
        async with open_client(connection, "yard") as client:
            return await work(client)

    return asyncio.run(run())
