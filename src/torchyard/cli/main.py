"""The root of the command line: the commands, and how errors are printed."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, NoReturn

import typer

from torchyard import __version__
from torchyard.api.errors import YardError
from torchyard.cli import doctor, elastic, images, jobs, logs, operator, plane, queue, run, store

app = typer.Typer(
    name="yard",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,  # a table would cut the names of options in a narrow terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"yard {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
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
app.command("ps")(jobs.ps)
app.command("list", hidden=True)(jobs.ps)
app.command("logs")(logs.logs)
app.command("why")(jobs.why)
app.command("events")(jobs.events)
app.command("stop")(jobs.stop)
app.command("resume")(jobs.resume)
app.command("delete")(jobs.delete)
app.add_typer(images.app, name="image")
app.add_typer(queue.app, name="queue")
# The runtime's own parser handles everything after `elastic`, including --help.
app.command(
    "elastic",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(elastic.elastic)


def main() -> None:
    """Run the command line. A known error prints its message and a hint, never a traceback."""
    try:
        app()
    except YardError as error:
        _exit_with_error(error.message, error.hint)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        _exit_with_error(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))


def _exit_with_error(message: str, hint: str = "") -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    raise SystemExit(1) from None
