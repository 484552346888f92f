"""`yard backup` and `yard restore`: the plane's store as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli.options import State, say
from torchyard.yard.settings import default_state

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")]


def backup(file: File, state: State = None) -> None:
    """Write the store into a file, while the plane goes on or while it is stopped."""
    from torchyard.yard import backups

    revision = backups.backup((state or default_state()).absolute(), file.absolute())
    say(f"saved revision {revision} to {file}")


def restore(
    file: File,
    state: State = None,
    replace: Annotated[bool, typer.Option("--replace", help="Put the present store aside and use the backup.")] = False,
) -> None:
    """Make a stopped plane's store what a backup holds."""
    from torchyard.yard import backups

    revision = backups.restore((state or default_state()).absolute(), file.absolute(), replace=replace)
    say(f"restored revision {revision} from {file}")
