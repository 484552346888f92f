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
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records, show_result
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
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Build an image from a Dockerfile. With output for programs, the steps are on standard error.

    Example: yard image build -t mnist:1 .
    """
    import asyncio

    from torchyard.node.images.build import ImageBuilder

    dockerfile = file or context / "Dockerfile"
    if not dockerfile.is_file():
        raise YardError(f"there is no Dockerfile at {dockerfile}", hint="pass its path with -f", code="NotFound")
    # as in docker, a name without a value takes the value of the environment variable
    pairs = (arg if "=" in arg else f"{arg}={os.environ.get(arg, '')}" for arg in build_arg or ())
    arguments = dict(pair.split("=", 1) for pair in pairs)
    print_line = (lambda line: typer.echo(line, err=True)) if quiet or for_programs(output) else say
    builder = ImageBuilder(_store(state), context, arguments=arguments, print_line=print_line)
    identity = asyncio.run(builder.build(dockerfile, tag))
    show_result({"name": tag, "id": identity}, output, f"built {identity} as {tag}", quiet=quiet)


@app.command("list", hidden=True)
@app.command("ls")
def list_images(state: State = None, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """List the images in the state directory.

    Example: yard image ls
    """
    images = _store(state).ls()
    chosen = Output.name if quiet else output
    if chosen is Output.table:
        images = [{**image, "id": image["id"].removeprefix("sha256:")[:12]} for image in images]
    show_records(images, chosen, columns={"name": "NAME", "id": "ID"}, empty="no images")


@app.command("inspect")
def inspect(name: Name, state: State = None, output: OutputOption = Output.json, quiet: Quiet = False) -> None:
    """Show an image's configuration, as JSON if no other format is chosen.

    Example: yard image inspect mnist:1
    """
    text = json.dumps(_store(state).inspect(name), indent=2, default=str)
    if quiet or output is Output.name:
        say(name)
    elif output is Output.yaml:
        import yaml

        say(yaml.safe_dump(json.loads(text), sort_keys=False).rstrip())
    else:
        say(text)


@app.command("tag")
def tag(
    source: Name, name: Name, state: State = None, output: OutputOption = Output.table, quiet: Quiet = False
) -> None:
    """Give an image another name.

    Example: yard image tag mnist:1 mnist:latest
    """
    _store(state).tag(source, name)
    show_result({"name": name, "source": source}, output, "", quiet=quiet)


@app.command("rm")
def remove(name: Name, state: State = None, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Remove a name of an image; remove the image with its last name.

    Example: yard image rm mnist:1
    """
    lines = _store(state).remove(name)
    show_result({"name": name, "removed": lines}, output, "\n".join(lines), quiet=quiet)


@app.command("map")
def map_name(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN", help="Pattern of names, such as registry.example.com/*.")
    ] = "",
    image: Annotated[str, typer.Argument(metavar="IMAGE]", help="Name of the image to run instead.")] = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run IMAGE for every image name that matches PATTERN. Without arguments, list the patterns.

    Example: yard image map 'registry.example.com/team/*' pytorch/pytorch
    """
    store = _store(state)
    if image:
        store.map(pattern, image)
        show_result({"name": pattern, "image": image}, output, "", quiet=quiet)
    elif pattern:
        raise YardError(
            f"{pattern}: no image to run instead",
            hint="`yard image map PATTERN IMAGE`; `unmap` removes one",
            code="BadOption",
        )
    else:
        mappings = [{"name": mapped, "image": target} for mapped, target in store.mappings().items()]
        chosen = Output.name if quiet else output
        show_records(mappings, chosen, columns={"name": "PATTERN", "image": "IMAGE"}, empty="no patterns")


@app.command("unmap")
def unmap(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A pattern that `yard image map` lists.")],
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Remove a pattern of `yard image map`.

    Example: yard image unmap 'registry.example.com/team/*'
    """
    _store(state).unmap(pattern)
    show_result({"name": pattern, "action": "removed"}, output, "", quiet=quiet)


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
    quiet: Quiet = False,
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
    say(str(archive) if quiet else f"saved {name} to {archive} ({archive.stat().st_size / 1e6:.1f} MB)")


@app.command("load")
def load(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="An OCI archive, or an archive of docker save or podman save.")
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the image. Default: the name in the archive.")
    ] = "",
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Load an image from an archive, without a container engine.

    Example: yard image load mnist.tar
    """
    from torchyard.node.images.load import load as read

    loaded = [{"name": each} for each in read(_store(state), archive, name=name)]
    chosen = Output.name if quiet else output
    if for_programs(chosen):
        show_records(loaded, chosen, columns={}, empty="")
    else:
        for each in loaded:
            say(f"loaded {each['name']}")
