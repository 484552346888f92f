"""`yard operator`, `install`, `uninstall`: the controllers on a real Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say
from torchyard.cli.target import Context, Kubeconfig, ask
from torchyard.operator import settings as names

if TYPE_CHECKING:
    from torchyard.kube.client import Client

Gang = Annotated[
    str,
    typer.Option(
        "--gang-scheduler-name", metavar="NAME", help="volcano, or a scheduler with scheduler-plugins; default: none."
    ),
]


def operator(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Look after this namespace only; may be repeated.")
    ] = None,
    selector: Annotated[str, typer.Option(metavar="LABELS", help="Look after jobs with these labels only.")] = "",
    gang_scheduler_name: Gang = "",
    pytorch_init_container_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image in which workers wait for the master.")
    ] = "alpine:3.10",
    pytorch_init_container_max_tries: Annotated[int, typer.Option(metavar="N", min=1)] = 100,
    controller_threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Jobs worked on at the same time.")
    ] = names.WORKERS,
    most_requests: Annotated[
        int, typer.Option(metavar="N", min=1, help="Requests under way at once; fewer when the server complains.")
    ] = names.MOST_REQUESTS,
    own_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the operator's lease and certificates are kept.")
    ] = names.NAMESPACE,
    leader_elect: Annotated[bool, typer.Option(help="Act only while holding the lease.")] = True,
    webhook: Annotated[bool, typer.Option(help="Answer admission reviews of PyTorchJobs.")] = True,
    beside_upstream: Annotated[
        bool, typer.Option("--beside-upstream", help="Start even if another training operator runs.")
    ] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = names.HOST,
    metrics_port: Annotated[int, typer.Option(metavar="N", min=0, max=65535)] = names.METRICS_PORT,
    health_port: Annotated[int, typer.Option(metavar="N", min=0, max=65535)] = names.HEALTH_PORT,
    webhook_port: Annotated[int, typer.Option(metavar="N", min=0, max=65535)] = names.WEBHOOK_PORT,
) -> None:
    """Look after the PyTorchJobs of a cluster. Runs until it is stopped."""
    from torchyard.kube.kubeconfig import load
    from torchyard.kube.process import prefer_uvloop, tune_garbage_collector
    from torchyard.operator.logs import set_up
    from torchyard.operator.operator import Operator

    settings = names.Settings(
        namespaces=tuple(namespace or ()),
        selector=selector,
        gang_scheduler=gang_scheduler_name,
        init_image=pytorch_init_container_image,
        init_tries=pytorch_init_container_max_tries,
        workers=controller_threads,
        most_requests=most_requests,
        own_namespace=own_namespace,
        elect=leader_elect,
        webhook=webhook,
        beside_upstream=beside_upstream,
        host=host,
        metrics_port=metrics_port,
        health_port=health_port,
        webhook_port=webhook_port,
    )
    set_up()
    connection = load(kubeconfig, context=context)
    logging.getLogger(__name__).info("%s looks after %s", settings.identity, connection.server)

    async def run() -> None:
        tune_garbage_collector()
        await _until_signal(Operator(connection, settings).run)

    prefer_uvloop()
    asyncio.run(run())


def install(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Where the operator runs.")] = names.NAMESPACE,
    watch_namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Look after this namespace only, with rights there only; may be repeated."),
    ] = None,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="The operator's image.")] = names.IMAGE,
    replicas: Annotated[int, typer.Option(metavar="N", min=1, help="Copies; one acts at a time.")] = 2,
    gang_scheduler_name: Gang = "",
    queues: Annotated[
        bool | None, typer.Option(help="Bring jobs into Kueue's queues; default: where Kueue leaves them to us.")
    ] = None,
    crds_only: Annotated[bool, typer.Option("--crds-only", help="Only make PyTorchJobs known to the cluster.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifests and change nothing.")] = False,
) -> None:
    """Install the operator on a cluster, or bring it up to date."""
    from torchyard.core.queue.kueue_detection import IntegrationMode
    from torchyard.kube.kubeconfig import load
    from torchyard.operator import install as installing
    from torchyard.operator.manifests import Installation, as_yaml, definitions, objects
    from torchyard.operator.queues import look
    from torchyard.operator.report import is_plane

    to = Installation(
        image,
        namespace,
        replicas=replicas,
        gang_scheduler=gang_scheduler_name,
        watched=tuple(watch_namespace or ()),
        queues=bool(queues),
    )
    if dry_run:
        say(as_yaml([*definitions(), *([] if crds_only else objects(to))]).rstrip())
        return

    async def work(client: Client) -> None:
        if await is_plane(client):
            said = "this is a plane, which looks after PyTorchJobs itself; nothing is to be installed"
            raise YardError(said, hint="name a cluster with --context or --kubeconfig")
        if crds_only:
            await installing.install(client, None, say)
            return
        wanted = (await look(client)).mode is IntegrationMode.EXTERNAL if queues is None else queues
        await installing.install(client, replace(to, queues=wanted), say)

    ask(load(kubeconfig, context=context), work)


def uninstall(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Where the operator runs.")] = names.NAMESPACE,
    with_jobs: Annotated[
        bool, typer.Option("--with-jobs", help="Delete the definition of PyTorchJobs too, and with it every job.")
    ] = False,
) -> None:
    """Remove the operator from a cluster. Jobs, and what they are defined by, stay unless asked."""
    from torchyard.kube.kubeconfig import load
    from torchyard.operator import install as installing
    from torchyard.operator.manifests import Installation

    to = Installation("", namespace)
    ask(
        load(kubeconfig, context=context),
        lambda client: installing.uninstall(client, to, say, with_definitions=with_jobs),
    )


async def _until_signal(run: Callable[[], Awaitable[None]]) -> None:
    """A pod that is told to go gives its lease back first."""
    task = asyncio.ensure_future(run())
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
