"""`yard backup` and `yard restore`: the plane's store as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli.options import State
from torchyard.cli.output import Output, OutputOption, Quiet, show_result
from torchyard.yard.settings import default_state

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")]


def backup(file: File, state: State = None, output: OutputOption = Output.table, quiet: Quiet = False) -> None:
    """Write the store to a file. The plane may be running.

    Example: yard backup monday.db
    """
    from torchyard.yard import backups

    revision = backups.backup((state or default_state()).absolute(), file.absolute())
    record = {"name": str(file), "revision": revision}
    show_result(record, output, f"saved revision {revision} to {file}", quiet=quiet)


def restore(
    file: File,
    state: State = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Rename the present store and put the backup in its place.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Restore the store of a stopped plane from a backup.

    Example: yard restore monday.db --replace
    """
    from torchyard.yard import backups

    revision = backups.restore((state or default_state()).absolute(), file.absolute(), replace=replace)
    record = {"name": str(file), "revision": revision}
    show_result(record, output, f"restored revision {revision} from {file}", quiet=quiet)
