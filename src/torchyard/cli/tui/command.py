"""`yard tui`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import is_interactive
from torchyard.cli.target import Cluster, with_cluster


@with_cluster
def tui(
    cluster: Cluster,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Open this job.")] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")] = False,
) -> None:
    """Show jobs, replicas, curves and logs in this terminal, with the keys of the web console: ? lists them.

    Example: yard tui -A
    """
    if not is_interactive():
        raise YardError(
            "yard tui needs a terminal on standard input and output",
            hint="use ssh -t; `yard ps -w`, `yard top` and `yard logs -f` write lines",
            code="NoTerminal",
        )
    asyncio.run(_show(cluster, job, all_namespaces=all_namespaces))


async def _show(cluster: Cluster, name: str, *, all_namespaces: bool) -> None:
    from torchyard.cli.console import history_reader
    from torchyard.cli.tui.alternate_screen import AlternateScreen
    from torchyard.cli.tui.app import TuiApp
    from torchyard.cli.tui.job_data import JobData
    from torchyard.cli.tui.job_page import JobPage
    from torchyard.cli.tui.jobs_page import JobsPage
    from torchyard.cli.tui.live_jobs import LiveJobs
    from torchyard.console.forwarding import OWNER, ForwardingBackend
    from torchyard.console.origin import OWN_HEADER
    from torchyard.kube.client import Client
    from torchyard.kube.connect import open_transport
    from torchyard.kube.job_lookup import JobHandle, find_job

    async with open_transport(cluster.connection, "yard-tui", headers={OWN_HEADER: "1"}) as transport:
        client = Client(transport, manager="yard-tui")
        backend = ForwardingBackend(
            transport,
            context=cluster.connection.context,
            namespace=cluster.namespace,
            read_history=history_reader(cluster),
        )
        identity = await backend.identity(OWNER)  # fails before the screen changes if the cluster does not answer
        handle = await find_job(client, name, cluster.namespace) if name else None
        app = TuiApp(AlternateScreen(), f"{identity['context'] or 'yard'} ({identity['user']})")

        def open_job(handle: JobHandle) -> JobPage:
            return JobPage(client, JobData(client, backend, handle, app.changed, cluster))

        namespace = "" if all_namespaces else cluster.namespace
        sampling = asyncio.ensure_future(backend.run())
        try:
            jobs = JobsPage(LiveJobs(client, namespace, app.changed), namespace, open_job)
            await app.run([jobs] if handle is None else [jobs, open_job(handle)])
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
