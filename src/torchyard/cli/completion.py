"""Names of the cluster for the completion of shells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import typer

from torchyard.api.errors import YardError

# A shell that completes a word waits for the answer.
SECONDS = 2.0


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of jobs that begin with the word. Without a cluster there are none."""
    from torchyard.cli.target import choose_cluster, run_with_client
    from torchyard.kube.client import Client
    from torchyard.kube.job_lookup import list_jobs

    values = {name: ctx.params.get(name) or "" for name in ("namespace", "context")}
    paths = {name: Path(ctx.params[name]) if ctx.params.get(name) else None for name in ("kubeconfig", "state")}

    async def names(client: Client) -> list[str]:
        async with asyncio.timeout(SECONDS):
            return [job.name for job in await list_jobs(client, namespace)]

    try:
        cluster = choose_cluster(**values, **paths)  # type: ignore[arg-type]
        namespace = cluster.namespace
        return [name for name in run_with_client(cluster.connection, names) if name.startswith(incomplete)]
    except (YardError, OSError, TimeoutError):
        return []
