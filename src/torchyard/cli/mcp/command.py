"""`yard mcp`: serves a coding agent that has started it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli.options import State
from torchyard.cli.target import Context, Kubeconfig, Namespace


def mcp(
    allow_write: Annotated[
        bool, typer.Option("--allow-write", help="Also offer the tools that start, change and delete jobs.")
    ] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = None,
) -> None:
    """Serve the Model Context Protocol on standard input and output, for coding agents.

    The tools are the daily commands: ps, why, logs, events, top, history, compare; with --allow-write also run, smoke,
    sweep, rerun, stop, resume, delete and exec. Paths are relative to the directory it was started in.

    Examples: yard mcp; claude mcp add torchyard -- yard mcp --allow-write
    """
    asyncio.run(_serve(_cluster_options(namespace, kubeconfig, context, state), allow_write=allow_write))


def _cluster_options(namespace: str, kubeconfig: Path | None, context: str, state: Path | None) -> list[str]:
    chosen = {"--namespace": namespace, "--kubeconfig": kubeconfig, "--context": context, "--state": state}
    return [f"{option}={value}" for option, value in chosen.items() if value]


async def _serve(cluster: list[str], *, allow_write: bool) -> None:
    from torchyard.cli.mcp.process import run_command
    from torchyard.cli.mcp.server import MESSAGE_LIMIT, Server
    from torchyard.cli.mcp.tools import READ_TOOLS, WRITE_TOOLS

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    reader = asyncio.StreamReader(limit=MESSAGE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tools = (*READ_TOOLS, *(WRITE_TOOLS if allow_write else ()))
    await Server(tools, cluster, run_command, write).serve(reader)
