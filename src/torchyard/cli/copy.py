"""`yard cp`: files between this machine and a replica of a job, as a tar stream through `exec`."""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.job_arguments import Container, Rank
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.kube.client import Client
    from torchyard.kube.container_streams import ContainerAddress
    from torchyard.kube.http import HttpTransport

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path in a replica: `JOB:PATH`."""

    job: str
    path: str


@with_cluster
def cp(
    cluster: Cluster,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path, or JOB:PATH in a replica.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A path, or JOB:PATH in a replica.")],
    rank: Rank = "",
    container: Container = "",
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Copy a file or a directory from a replica of a job or to it. The container needs `tar`.

    Examples: yard cp mnist:/workspace/model.pt . ; yard cp data mnist:/tmp --rank 1
    """
    sender, receiver = _parse(source), _parse(target)
    if isinstance(sender, RemotePath) == isinstance(receiver, RemotePath):
        raise YardError(
            f"{source} and {target}: exactly one of them must be in a replica",
            hint="write JOB:PATH for it, such as mnist:/tmp/model.pt",
            code="BadOption",
        )
    remote = sender if isinstance(sender, RemotePath) else receiver
    assert isinstance(remote, RemotePath)

    if isinstance(sender, Path) and not sender.exists():
        raise YardError(f"cannot read {source}: No such file or directory", code="NotFound")
    into = receiver if isinstance(receiver, Path) and receiver.is_dir() else Path(target).parent
    if isinstance(receiver, Path) and not into.is_dir():
        raise YardError(f"directory {into} does not exist", hint="create it first", code="NotFound")
    origin = Path(source).resolve()
    with tempfile.TemporaryFile() as packed:

        async def work(client: Client) -> str:
            from torchyard.cli.replica import find_container
            from torchyard.kube.connect import open_transport

            address = await find_container(client, remote.job, cluster, rank, container)
            async with open_transport(cluster.connection, "yard") as transport:
                if isinstance(sender, Path):
                    await _upload(transport, address, origin, remote.path)
                else:
                    await _download(transport, address, remote.path, packed)
            return address.pod

        pod = cluster.run(work)
        if isinstance(receiver, Path):
            _unpack(packed, remote.path, into, "" if into == receiver else receiver.name)
    output = Output.name if quiet else output
    if for_programs(output):
        show_records([{"name": f"pod/{pod}", "source": source, "target": target}], output, columns={}, empty="")
    else:
        say(f"copied {source} to {target}")


def _parse(text: str) -> RemotePath | Path:
    """A path with a slash before its colon, or that exists here, is local."""
    from torchyard.kube.job_lookup import is_kind

    job, colon, path = text.partition(":")
    kind, _, name = job.rpartition("/")
    if not colon or not name or (kind and not is_kind(kind)):
        return Path(text)
    return RemotePath(job, path or ".")


async def _upload(transport: HttpTransport, address: ContainerAddress, source: Path, path: str) -> None:
    directory, name = posixpath.split(path)
    # as cp does it: into a directory that exists, or under the name itself
    script = (
        'if [ -d "$1" ]; then cd "$1" && exec tar xf -; fi; '
        'mkdir -p "$2" && cd "$2" && mkdir ".yard-cp.$$" && tar xf - -C ".yard-cp.$$" '
        '&& mv ".yard-cp.$$/$4" "$3" && rmdir ".yard-cp.$$"'
    )
    command = ["sh", "-c", script, "sh", path, directory or ".", name or ".", source.name]
    await _run(transport, address, command, stdin=_packed(source))


async def _packed(source: Path) -> AsyncIterator[bytes]:
    """The file or directory as a tar archive, packed in a thread while it is sent."""
    reader, writer = os.pipe()

    def pack() -> None:
        with os.fdopen(writer, "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
            try:
                archive.add(source, arcname=source.name)
            except PermissionError as error:
                raise YardError(f"cannot read {error.filename}: {error.strerror}", code="CopyFailed") from error

    packing = asyncio.ensure_future(asyncio.to_thread(pack))
    with os.fdopen(reader, "rb") as file:
        while data := await asyncio.to_thread(file.read1, _BLOCK):
            yield data
    await packing


async def _download(transport: HttpTransport, address: ContainerAddress, path: str, packed: IO[bytes]) -> None:
    directory, name = posixpath.split(posixpath.normpath(path))
    if name == "..":  # tar would leave it out of the names
        directory, name = path, "."
    script = 'cd "$1" && exec tar cf - -- "$2"'
    await _run(transport, address, ["sh", "-c", script, "sh", directory or ".", name or "."], output=packed)


def _unpack(packed: IO[bytes], path: str, directory: Path, name: str) -> None:
    """Unpack what a pod sent: nothing besides the file or directory of that path, which `name` renames, no devices."""
    first = posixpath.basename(posixpath.normpath(path)) or "."
    first = "." if first == ".." else first
    root = Path(os.path.realpath(directory / (name or first)))
    packed.seek(0)
    try:
        with tarfile.open(fileobj=packed) as archive:
            for member in archive:
                member.name = _renamed(member.name, first, name)
                _check_beneath(root, directory / member.name)
                if member.islnk():
                    member.linkname = _renamed(member.linkname, first, name)
                    _check_beneath(root, directory / member.linkname)
                archive.extract(member, directory, filter="data")
    except (tarfile.TarError, KeyError) as error:  # KeyError: a hard link to a file that the archive does not have
        raise YardError(
            f"{path}: what the pod sent is refused: {error}",
            hint="copy the files without links that lead elsewhere",
            code="CopyFailed",
        ) from error


def _renamed(path: str, first: str, name: str) -> str:
    """The path of a member with another first component. Raises ExtractError if it is none of the copied files."""
    top, *rest = path.split("/")
    if top != first or ".." in rest:
        raise tarfile.ExtractError(f"{path} was not asked for")
    return "/".join([name or first, *rest])


def _check_beneath(root: Path, path: Path) -> None:
    """A symbolic link that the archive has brought must not lead to a file beside the copied ones."""
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise tarfile.ExtractError(f"{path} was not asked for")


async def _run(
    transport: HttpTransport,
    address: ContainerAddress,
    command: list[str],
    *,
    stdin: AsyncIterator[bytes] | None = None,
    output: IO[bytes] | None = None,
) -> None:
    from torchyard.kube.container_streams import STDOUT, run_process

    errors = io.BytesIO()

    def write(channel: int, data: bytes) -> None:
        (output if channel == STDOUT and output is not None else errors).write(data)

    code = await run_process(transport, address, command, write, stdin=stdin)
    if code:
        detail = errors.getvalue().decode(errors="replace").strip() or f"exit code {code}"
        raise YardError(f"{address.pod}: {detail}", hint="the container needs sh, tar, mkdir and mv", code="CopyFailed")
