"""`yard exec`, `attach` and `port-forward`: the processes and ports of a job's replicas."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from torchyard.api.errors import YardError
from torchyard.cli.job_arguments import Container, JobName, Rank
from torchyard.cli.options import is_interactive, say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, for_programs, show_records
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.kube.client import Client
    from torchyard.kube.container_streams import ContainerAddress
    from torchyard.kube.http import HttpTransport

Forward = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_STREAMS = {"stdout": False, "stderr": True}
_SHELL = ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"]


@with_cluster
def exec_command(
    cluster: Cluster,
    job: JobName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]...", help="Command after --. Default: a shell.")
    ] = None,
    rank: Rank = "",
    container: Container = "",
    stdin: Annotated[
        bool, typer.Option("-i", "--stdin", help="Pass standard input on. On a terminal it always is.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run a command in a replica of a job, and exit with its exit code. On a terminal it gets one too.

    With -o json or yaml, the exit code and what the command printed are one record; -o name and -q print only the pod.

    Examples: yard exec mnist; yard exec mnist --rank 1 -- nvidia-smi
    """
    output = Output.name if quiet else output
    if for_programs(output):
        _run_for_programs(cluster, ReplicaReference(job, rank, container), command or [], output, stdin=stdin)
    _run(cluster, ReplicaReference(job, rank, container), command or _SHELL, stdin=stdin)


@with_cluster
def attach(cluster: Cluster, job: JobName, rank: Rank = "", container: Container = "") -> None:
    """Attach to the main process of a replica: its output from now on.

    Example: yard attach mnist --rank 0
    """
    _run(cluster, ReplicaReference(job, rank, container), [], stdin=False)


class ReplicaReference(NamedTuple):
    """What the options of a command name."""

    job: str
    rank: str
    container: str


def _run_for_programs(
    cluster: Cluster, replica: ReplicaReference, command: list[str], output: Output, *, stdin: bool
) -> NoReturn:
    if not command:
        raise YardError("a record needs a command", hint="yard exec JOB -o json -- COMMAND", code="BadOption")

    async def work(client: Client) -> Record:
        from torchyard.cli.replica import find_container
        from torchyard.cli.terminal import read_input
        from torchyard.kube.connect import open_transport
        from torchyard.kube.container_streams import STDERR, run_process

        printed = {False: bytearray(), True: bytearray()}
        address = await find_container(client, replica.job, cluster, replica.rank, replica.container)
        async with open_transport(cluster.connection, "yard") as transport:
            with _reporting_missing_programs(command, address):
                code = await run_process(
                    transport,
                    address,
                    command,
                    lambda channel, data: printed[channel == STDERR].extend(data),
                    stdin=read_input() if stdin else None,
                )
        texts = {name: printed[is_error].decode(errors="replace") for name, is_error in _STREAMS.items()}
        return {"name": f"pod/{address.pod}", "container": address.container, "exitCode": code, **texts}

    record = cluster.run(work)
    show_records([record], output, columns={}, empty="")
    raise typer.Exit(record["exitCode"])


def _run(cluster: Cluster, replica: ReplicaReference, command: list[str], *, stdin: bool) -> NoReturn:
    is_terminal = is_interactive()

    async def work(client: Client) -> int:
        from torchyard.cli.replica import find_container
        from torchyard.kube.connect import open_transport

        address = await find_container(client, replica.job, cluster, replica.rank, replica.container)
        async with open_transport(cluster.connection, "yard") as transport:
            return await _stream(transport, address, command, stdin=stdin, is_terminal=is_terminal and bool(command))

    raise typer.Exit(cluster.run(work))


async def _stream(
    transport: HttpTransport, address: ContainerAddress, command: list[str], *, stdin: bool, is_terminal: bool
) -> int:
    from torchyard.cli.terminal import raw_mode, read_input, terminal_sizes, write_output
    from torchyard.kube.container_streams import run_process

    with _reporting_missing_programs(command, address), raw_mode() if is_terminal else nullcontext():
        return await run_process(
            transport,
            address,
            command,
            write_output,
            stdin=read_input() if stdin or is_terminal else None,
            tty=is_terminal,
            sizes=terminal_sizes() if is_terminal else None,
        )


# What runtimes report about a program that the container does not have.
_NO_PROGRAM = ("executable file not found", "no such file or directory")


@contextmanager
def _reporting_missing_programs(command: list[str], address: ContainerAddress) -> Iterator[None]:
    try:
        yield
    except YardError as error:
        if error.code != "InternalError" or not command:
            raise
        reason = ": permission denied" if "permission denied" in error.message else ""
        hint = f"is it among the programs of the container {address.container}?"
        if not reason and not any(
            words in error.message for words in _NO_PROGRAM
        ):  # such as a container that has ended
            reason, hint = f": {error.message}", "`yard ps` shows whether the job still runs"
        raise YardError(
            f"{command[0]} could not be started in {address.pod}{reason}", hint=hint, code="CannotStart"
        ) from error


@with_cluster
def port_forward(
    cluster: Cluster,
    job: JobName,
    ports: Annotated[
        list[str], typer.Argument(metavar="[LOCAL:]REMOTE...", help="Ports; 0 or nothing before : chooses a free one.")
    ],
    rank: Rank = "",
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Forward ports of this machine to a replica of a job, until Ctrl-C.

    Example: yard port-forward mnist 6006 --rank 0
    """
    pairs = [_parse_ports(pair) for pair in ports]
    chosen = Output.name if quiet else output

    async def work(client: Client) -> None:
        from torchyard.cli.replica import find_container
        from torchyard.kube.connect import open_transport

        target = await find_container(client, job, cluster, rank, "")
        async with open_transport(cluster.connection, "yard") as transport:
            records = []
            for local, remote in pairs:
                server = await _listen(partial(_forward, transport, target, remote), address, local)
                host, port = server.sockets[0].getsockname()[:2]
                records.append({"name": f"pod/{target.pod}", "address": host, "port": port, "remotePort": remote})
                if not for_programs(chosen):
                    say(f"Forwarding from {host}:{port} -> {target.pod}:{remote}")
            if for_programs(chosen):
                show_records(records, chosen, columns={}, empty="")
                sys.stdout.flush()
            await asyncio.Event().wait()

    cluster.run(work)


async def _listen(forward: Forward, address: str, port: int) -> asyncio.Server:
    try:
        return await asyncio.start_server(forward, address, port)
    except OSError as error:
        raise YardError(
            f"cannot listen on {address}:{port}: {os.strerror(error.errno) if error.errno else error}",
            hint="choose another port before the colon; nothing before it chooses a free one",
            code="PortTaken" if error.errno == errno.EADDRINUSE else "BadOption",
        ) from error


async def _forward(
    transport: HttpTransport,
    target: ContainerAddress,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    from torchyard.kube.container_streams import forward_connection

    try:
        await forward_connection(transport, target, port, reader, writer)
    except YardError as error:
        typer.echo(f"error: {error.message}", err=True)
    except ConnectionError:  # the local program closed the connection
        pass


def _parse_ports(pair: str) -> tuple[int, int]:
    local, colon, remote = pair.rpartition(":")
    try:
        numbers = (int(local or 0) if colon else int(remote)), int(remote)
    except ValueError:
        numbers = -1, -1
    if not all(0 <= number <= 65535 for number in numbers) or not numbers[1]:
        raise YardError(
            f"{pair} is not a pair of ports",
            hint="write 8080, 9090:8080 or :8080, each at most 65535",
            code="BadOption",
        )
    return numbers
