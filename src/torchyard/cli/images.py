"""`yard image`: builds and stores images without a container engine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import State, say
from torchyard.yard.settings import PlaneSettings, default_state

if TYPE_CHECKING:
    from torchyard.node.images.store import ImageStore

app = typer.Typer(
    help="Build and manage images without a container engine.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an image, such as mnist:1.0.")]


def _store(state: Path | None) -> ImageStore:
    from torchyard.yard.images import image_store

    return image_store(PlaneSettings(state=(state or default_state()).absolute()))


@app.command("build")
def build(
    context: Annotated[
        Path, typer.Argument(metavar="DIR", help="Build context: the directory that COPY and ADD read from.")
    ],
    tag: Annotated[str, typer.Option("-t", "--tag", metavar="NAME", help="Name of the new image.")],
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Path of the Dockerfile. Default: DIR/Dockerfile.")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Value of an ARG. May be repeated.")
    ] = None,
    state: State = None,
) -> None:
    """Build an image from a Dockerfile.

    Example: yard image build -t mnist:1 .
    """
    import asyncio

    from torchyard.node.images.build import ImageBuilder

    dockerfile = file or context / "Dockerfile"
    if not dockerfile.is_file():
        raise YardError(f"there is no Dockerfile at {dockerfile}", hint="pass its path with -f")
    # as in docker, a name without a value takes the value of the environment variable
    pairs = (arg if "=" in arg else f"{arg}={os.environ.get(arg, '')}" for arg in build_arg or ())
    arguments = dict(pair.split("=", 1) for pair in pairs)
    builder = ImageBuilder(_store(state), context, arguments=arguments, print_line=say)
    say(f"built {asyncio.run(builder.build(dockerfile, tag))} as {tag}")


@app.command("ls")
def list_images(state: State = None) -> None:
    """List the images in the state directory.

    Example: yard image ls
    """
    say(f"{'NAME':<48} ID")
    for image in _store(state).ls():
        say(f"{image['name']:<48} {image['id'].removeprefix('sha256:')[:12]}")


@app.command("inspect")
def inspect(name: Name, state: State = None) -> None:
    """Show an image's configuration as JSON.

    Example: yard image inspect mnist:1
    """
    say(json.dumps(_store(state).inspect(name), indent=2, default=str))


@app.command("tag")
def tag(source: Name, name: Name, state: State = None) -> None:
    """Give an image another name.

    Example: yard image tag mnist:1 mnist:latest
    """
    _store(state).tag(source, name)


@app.command("rm")
def remove(name: Name, state: State = None) -> None:
    """Remove a name of an image; remove the image with its last name.

    Example: yard image rm mnist:1
    """
    for line in _store(state).remove(name):
        say(line)


@app.command("map")
def map_name(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN", help="Pattern of names, such as registry.example.com/*.")
    ] = "",
    image: Annotated[str, typer.Argument(metavar="IMAGE]", help="Name of the image to run instead.")] = "",
    state: State = None,
) -> None:
    """Run IMAGE for every image name that matches PATTERN. Without arguments, list the patterns.

    Example: yard image map 'registry.example.com/team/*' pytorch/pytorch
    """
    store = _store(state)
    if image:
        store.map(pattern, image)
    elif pattern:
        raise YardError(
            f"{pattern}: no image to run instead", hint="`yard image map PATTERN IMAGE`; `unmap` removes one"
        )
    else:
        say(f"{'PATTERN':<48} IMAGE")
        for mapped, target in store.mappings().items():
            say(f"{mapped:<48} {target}")


@app.command("unmap")
def unmap(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A pattern that `yard image map` lists.")],
    state: State = None,
) -> None:
    """Remove a pattern of `yard image map`.

    Example: yard image unmap 'registry.example.com/team/*'
    """
    _store(state).unmap(pattern)


@app.command("save")
def save(
    name: Name,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Path of the archive to write.")],
    machine: Annotated[
        bool | None,
        typer.Option(
            "--with-machine/--layers-only",
            help="For an image built on the programs of this machine: include them, or save its own layers only.",
        ),
    ] = None,
    state: State = None,
) -> None:
    """Write an image to an OCI archive, for containerd and docker to load.

    Example: yard image save mnist:1 -o mnist.tar --with-machine
    """
    from torchyard.node.images.save import save as write

    def report(done: int, total: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\rpacked {done / 1e9:.1f} of {total / 1e9:.1f} GB", nl=False, err=True)

    archive = write(_store(state), name, output.absolute(), with_machine=machine, report=report)
    if sys.stderr.isatty():
        typer.echo("\r\033[K", nl=False, err=True)
    say(f"saved {name} to {archive} ({archive.stat().st_size / 1e6:.1f} MB)")


@app.command("load")
def load(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="An OCI archive, or an archive of docker save or podman save.")
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the image. Default: the name in the archive.")
    ] = "",
    state: State = None,
) -> None:
    """Load an image from an archive, without a container engine.

    Example: yard image load mnist.tar
    """
    from torchyard.node.images.load import load as read

    for loaded in read(_store(state), archive, name=name):
        say(f"loaded {loaded}")
