"""The root of the command line: commands, and how an error looks to a person."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, NoReturn

import typer

from torchyard import __version__
from torchyard.api.errors import YardError
from torchyard.cli import doctor, elastic, images, operator, plane, queue, run, store

app = typer.Typer(
    name="yard",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"yard {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """PyTorch training the Kubernetes way, on one machine or on a cluster."""


app.command("up")(plane.up)
app.command("down")(plane.down)
app.command("status")(plane.status)
app.command("kubeconfig")(plane.kubeconfig)
app.command("backup")(store.backup)
app.command("restore")(store.restore)
app.command("doctor")(doctor.doctor)
app.command("operator")(operator.operator)
app.command("install")(operator.install)
app.command("uninstall")(operator.uninstall)
app.command("run")(run.run)
app.add_typer(images.app, name="image")
app.add_typer(queue.app, name="queue")
# Everything after `elastic` is for the runtime's own parser, its --help included.
app.command(
    "elastic",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(elastic.elastic)


def main() -> None:
    """Run the command line; a known error is one sentence and its hint, never a traceback."""
    try:
        app()
    except YardError as error:
        _end(error.message, error.hint)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))


def _end(message: str, hint: str = "") -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    raise SystemExit(1) from None
