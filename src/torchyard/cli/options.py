"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        readable=False,  # who may not read it is told more than that
        help="State directory of the plane. Default: $XDG_STATE_HOME/torchyard or ~/.local/state/torchyard.",
    ),
]


def say(line: str) -> None:
    """One line for a person."""
    typer.echo(line)
