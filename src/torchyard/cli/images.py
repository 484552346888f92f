"""`yard image`: images built and kept without a container engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import State, say
from torchyard.yard.settings import Settings, default_state

if TYPE_CHECKING:
    from torchyard.node.images.store import ImageStore

app = typer.Typer(help="Build and manage images without a container engine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="An image's name, such as mnist:1.0.")]


def _store(state: Path | None) -> ImageStore:
    from torchyard.yard.images import image_store

    return image_store(Settings(state=(state or default_state()).absolute()))


@app.command("build")
def build(
    context: Annotated[Path, typer.Argument(metavar="DIR", help="The directory COPY and ADD read from.")],
    tag: Annotated[str, typer.Option("-t", "--tag", metavar="NAME", help="What to call the image.")],
    file: Annotated[Path | None, typer.Option("-f", "--file", help="The Dockerfile. Default: DIR/Dockerfile.")] = None,
    build_arg: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A value for an ARG.")] = None,
    state: State = None,
) -> None:
    """Build an image from a Dockerfile."""
    import asyncio

    from torchyard.node.images.build import ImageBuilder

    dockerfile = file or context / "Dockerfile"
    if not dockerfile.is_file():
        raise YardError(f"there is no Dockerfile at {dockerfile}", hint="name it with -f")
    # as docker has it, a name alone stands for this shell's own variable
    given = (one if "=" in one else f"{one}={os.environ.get(one, '')}" for one in build_arg or ())
    arguments = dict(one.split("=", 1) for one in given)
    builder = ImageBuilder(_store(state), context, arguments=arguments, say=say)
    say(f"built {asyncio.run(builder.build(dockerfile, tag))} as {tag}")


@app.command("ls")
def list_images(state: State = None) -> None:
    """List the images that were built here."""
    found = _store(state).ls()
    say(f"{'NAME':<48} ID")
    for one in found:
        say(f"{one['name']:<48} {one['id'].removeprefix('sha256:')[:12]}")


@app.command("inspect")
def inspect(name: Name, state: State = None) -> None:
    """Show an image's configuration as JSON."""
    say(json.dumps(_store(state).inspect(name), indent=2, default=str))


@app.command("tag")
def tag(source: Name, name: Name, state: State = None) -> None:
    """Give an image another name."""
    _store(state).tag(source, name)


@app.command("rm")
def remove(name: Name, state: State = None) -> None:
    """Remove a name, and the image if it was its last."""
    for line in _store(state).remove(name):
        say(line)


@app.command("map")
def map_name(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Names such as registry.example.com/*.")],
    goal: Name,
    state: State = None,
) -> None:
    """Run another image wherever a name matches."""
    _store(state).map(pattern, goal)


@app.command("save")
def save(
    name: Name,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The archive to write.")],
    state: State = None,
) -> None:
    """Write an image as an OCI archive that containerd and docker load."""
    from torchyard.node.images.save import save as write

    store = _store(state)
    store.resolve(name)  # what is not here is said at once
    say(f"packing {name}; programs of this machine that it stands on are packed along, which may take minutes")
    say(f"saved {name} to {write(store, name, output.absolute())}")


@app.command("load")
def load(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="An OCI archive, or what docker or podman saved.")],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What to call it. Default: as it calls itself.")
    ] = "",
    state: State = None,
) -> None:
    """Take in a real image from an archive, without an engine."""
    from torchyard.node.images.load import load as read

    for one in read(_store(state), archive, name=name):
        say(f"loaded {one}")
