"""Which cluster a command talks to, and a client of it for as long as the command runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from torchyard.api.errors import YardError
from torchyard.cli.option_groups import with_groups
from torchyard.cli.options import State

if TYPE_CHECKING:
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import JobHandle
    from torchyard.kube.kubeconfig import Connection

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig file. Default: kubectl's, or the service account of the pod."),
]
Context = Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: the current one.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the context's.")]


class Cluster:
    """What the options of a command choose. The kubeconfig is read when it is first needed."""

    def __init__(self, namespace: str, kubeconfig: Path | None, context: str, state: Path | None) -> None:
        self._namespace, self._context = namespace, context
        self.kubeconfig, self.state = kubeconfig, state

    @cached_property
    def connection(self) -> Connection:
        return choose_connection(self.kubeconfig, self._context, self.state)

    @property
    def namespace(self) -> str:
        """The namespace that was named, else that of the context."""
        return self._namespace or self.connection.namespace

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Connect, run `work` with the client, and return its result. Ctrl-C ends the command as shells expect it."""
        try:
            return run_with_client(self.connection, work)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    async def find_job(self, client: Client, name: str) -> JobHandle:
        """The job of a name. The error about one that was deleted says what a plane has kept of it."""
        from torchyard.kube.job_lookup import find_job

        try:
            return await find_job(client, name, self.namespace)
        except YardError as error:
            from torchyard.jobs.past_jobs import with_hint_about_deleted

            raise await asyncio.to_thread(with_hint_about_deleted, self, name, error) from None

    def run_with_job(self, name: str, action: Callable[[Client, JobHandle], Awaitable[T]]) -> T:
        """Find a job by its name and run `action` with it."""

        async def work(client: Client) -> T:
            return await action(client, await self.find_job(client, name))

        return self.run(work)


def choose_cluster(
    namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = "", state: State = None
) -> Cluster:
    """The options that choose a cluster."""
    return Cluster(namespace, kubeconfig, context, state)


with_cluster = with_groups(cluster=choose_cluster)


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
