"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        readable=False,  # our own error for an unreadable directory says more than typer's
        help="State directory of the plane. Default: $XDG_STATE_HOME/torchyard or ~/.local/state/torchyard.",
    ),
]


def is_interactive() -> bool:
    """Whether a person sees what is printed and can answer: standard input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def say(line: str) -> None:
    """Print one line on standard output."""
    typer.echo(line)
