"""`yard elastic`: the training runtime's own command line."""

from __future__ import annotations

import typer


def elastic(context: typer.Context) -> None:
    """Train with workers that may join and leave: run, status, scale, events, checkpoints."""
    from torchyard.elastic.cli import main

    raise typer.Exit(main(context.args, prog="yard elastic"))
