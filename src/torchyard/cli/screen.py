"""The output of `yard run`: on a terminal the log above a table of the replicas; elsewhere one line at a time."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from torchyard.cli.printable import log_text, mask_unprintable
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.progress import TrainingProgress

OVERWRITTEN_SECONDS = 5.0
REFRESH_SECONDS = 1 / 8
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


@dataclass(frozen=True, slots=True)
class Replica:
    """One row of the table. `activity` is the line that the replica draws over, such as a progress bar."""

    name: str
    status: str
    progress: TrainingProgress | None = None
    activity: str = ""


class Screen(Protocol):
    def note(self, text: str) -> None:
        """Show a message about the whole job."""

    def log(self, replica: str, line: LogLine) -> None:
        """Show a log line of a replica."""

    def show(self, state: str, replicas: list[Replica], progress: str = "", *, job: str = "") -> None:
        """Show the state of a job and of its replicas. `progress` is of the whole job, such as `45%, 3m left`.

        `job` is its name if there are several.
        """

    def close(self) -> None:
        """End the output."""


class PlainScreen:
    """For pipes and files: writes whole lines and rewrites nothing.

    Of the lines that a replica draws over, one is written every few seconds.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._shown: dict[str, str] = {}
        self._overwritten_at: dict[str, float] = {}

    def note(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def log(self, replica: str, line: LogLine) -> None:
        if line.overwritten:
            now = time.monotonic()
            if now - self._overwritten_at.get(replica, -OVERWRITTEN_SECONDS) < OVERWRITTEN_SECONDS:
                return
            self._overwritten_at[replica] = now
        text = log_text(line.text) if self._is_terminal else line.text
        self.note(f"[{replica}] {text}" if replica else text)

    def show(self, state: str, replicas: list[Replica], progress: str = "", *, job: str = "") -> None:
        title = f"job {job}" if job else "the job"
        for name, status in ((title, state), *((replica.name, replica.status) for replica in replicas)):
            if self._shown.get(name) != status:
                self._shown[name] = status
                self.note(f"-- {name} is {status}")

    def close(self) -> None:
        pass


class TerminalScreen:
    """For terminals: the table stays below the log and disappears at the end.

    One thread writes both: rich's own refresh, in a thread, may draw the table between the steps in which a line of
    the log takes its place, and the table would stay in the log.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._order: list[str] = []
        self._tables: dict[str, Table] = {}
        self._refreshed_at = -REFRESH_SECONDS
        self._refresh: asyncio.TimerHandle | None = None

    def note(self, text: str) -> None:
        self._print(Text("\n".join(mask_unprintable(line) for line in text.split("\n")), style="bold"))

    def log(self, replica: str, line: LogLine) -> None:
        if line.overwritten:  # the table shows it
            return
        label = (f"[{replica}] ", self._colour(replica)) if replica else ""
        self._print(Text.assemble(label, Text.from_ansi(log_text(line.text))))

    def show(self, state: str, replicas: list[Replica], progress: str = "", *, job: str = "") -> None:
        state = f"{job} {state}" if job else state
        title = Text(f"{state}: {progress}" if progress else state, style="table.title")
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading in ("REPLICA", "STATUS", "PROGRESS", ""):
            table.add_column(heading)
        for replica in replicas:
            share = replica.progress
            bar = ProgressBar(total=100, completed=share.percent, width=30) if share else ""
            name = Text(replica.name, style=self._colour(replica.name))
            activity = log_text(replica.activity, colours=False)
            detail = Text(activity or (str(share) if share else ""), no_wrap=True, overflow="ellipsis")
            table.add_row(name, replica.status, bar, detail)
        self._tables[job] = table
        self._live.update(Group(*self._tables.values()))
        self._draw_soon()

    def close(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()
        self._live.stop()

    def _print(self, text: Text) -> None:
        """Print a text above the table. The terminal wraps it: a line that is copied from there stays one line."""
        self._console.print(text, soft_wrap=True)

    def _draw_soon(self) -> None:
        """Draw the table now, or, if it was drawn just now, a little later with what has changed until then."""
        if self._refresh is not None:
            return
        wait = self._refreshed_at + REFRESH_SECONDS - time.monotonic()
        if wait > 0:
            self._refresh = asyncio.get_running_loop().call_later(wait, self._draw)
        else:
            self._draw()

    def _draw(self) -> None:
        self._refresh = None
        self._refreshed_at = time.monotonic()
        self._live.refresh()

    def _colour(self, replica: str) -> str:
        name = replica.partition("/")[0]
        if name not in self._order:
            self._order.append(name)
        return _COLOURS[self._order.index(name) % len(_COLOURS)]


def create_screen(*, for_programs: bool = False) -> Screen:
    """Return the screen that fits standard output, or standard error if standard output has records for programs."""
    if for_programs:
        return PlainScreen(sys.stderr)
    console = Console(highlight=False)
    return TerminalScreen(console) if console.is_terminal else PlainScreen(sys.stdout)
