"""What a person sees while a job runs: on a terminal the log above a table of replicas; elsewhere a line at a time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from torchyard.core.run.progress import Progress

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


@dataclass(frozen=True, slots=True)
class Replica:
    """One line of the table."""

    name: str
    status: str
    progress: Progress | None = None


class Screen(Protocol):
    def note(self, text: str) -> None:
        """Something about the job as a whole."""

    def log(self, replica: str, line: str) -> None:
        """A line that a replica wrote."""

    def show(self, state: str, replicas: list[Replica]) -> None:
        """How the job and its replicas stand now."""

    def close(self) -> None:
        """Nothing more comes."""


class Plain:
    """For pipes and files: every line whole, nothing rewritten."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told: dict[str, str] = {}

    def note(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def log(self, replica: str, line: str) -> None:
        self.note(f"[{replica}] {line}" if replica else line)

    def show(self, state: str, replicas: list[Replica]) -> None:
        for name, word in (("", state), *((one.name, one.status) for one in replicas)):
            if self._told.get(name) != word:
                self._told[name] = word
                self.note(f"-- {name or 'the job'} is {word}")

    def close(self) -> None:
        pass


class Terminal:
    """For people: the table stays below the log and is taken away at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=True, refresh_per_second=8, transient=True)
        self._live.start()
        self._order: list[str] = []

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def log(self, replica: str, line: str) -> None:
        self._console.print(Text.assemble((f"[{replica}] ", self._colour(replica)) if replica else "", line))

    def show(self, state: str, replicas: list[Replica]) -> None:
        table = Table(title=state, title_justify="left", box=None, pad_edge=False)
        for heading in ("REPLICA", "STATUS", "PROGRESS", ""):
            table.add_column(heading)
        for one in replicas:
            bar = ProgressBar(total=100, completed=one.progress.percent, width=30) if one.progress else ""
            table.add_row(
                Text(one.name, style=self._colour(one.name)), one.status, bar, str(one.progress) if one.progress else ""
            )
        self._live.update(table)

    def close(self) -> None:
        self._live.stop()

    def _colour(self, replica: str) -> str:
        name = replica.partition("/")[0]
        if name not in self._order:
            self._order.append(name)
        return _COLOURS[self._order.index(name) % len(_COLOURS)]


def screen() -> Screen:
    """The one that suits where the output goes."""
    console = Console(highlight=False)
    return Terminal(console) if console.is_terminal else Plain(sys.stdout)
