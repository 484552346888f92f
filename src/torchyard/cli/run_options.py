"""The options of `yard run` that decide what happens to the objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from torchyard.cli.output import Output, for_programs


class OnInterrupt(StrEnum):
    leave = "leave"
    delete = "delete"


class DryRunMode(StrEnum):
    """As kubectl's option of this name."""

    none = "none"
    client = "client"
    server = "server"


DryRunOption = Annotated[
    DryRunMode,
    typer.Option(
        "--dry-run",
        help="Print the objects and exit; server, also --dry-run alone: as the server checked them.",
    ),
]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """`namespace` is that of objects that do not name one; empty for the context's."""

    namespace: str
    on_interrupt: OnInterrupt
    replace: bool = False
    diff: bool = False
    dry_run: DryRunMode = DryRunMode.none
    confirm: bool = False  # show the plan and ask
    detach: bool = False
    notify: str = ""  # a URL, or a command of the shell
    output: Output = Output.table  # for programs: records on standard output, everything else on standard error
    has_results: bool = False  # the caller prints other records at the end

    @property
    def for_programs(self) -> bool:
        return for_programs(self.output)
