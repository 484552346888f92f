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
    Path | None, typer.Option(metavar="FILE", help="Default: as kubectl chooses it, or the pod's own account.")
]
Context = Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.")]


def chosen(kubeconfig: Path | None, context: str, state: Path | None) -> Connection:
    """As told; else kubectl's choice; else the plane of this machine."""
    from torchyard.yard import target

    return target.chosen(kubeconfig, context, state)


def ask(connection: Connection, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` answers when it is given a client."""
    from torchyard.kube.connect import open_client

    async def run() -> T:
        async with open_client(connection, "yard") as client:
            return await work(client)

    return asyncio.run(run())
