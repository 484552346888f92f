"""The table of `yard run` on a terminal."""

from __future__ import annotations

import asyncio
import io
import threading

from rich.console import Console

from torchyard.cli.screen import PlainScreen, Replica, TerminalScreen
from torchyard.core.run.progress import TrainingProgress

ROWS = [Replica("worker-0", "Running", TrainingProgress(45.0))]


def test_the_table_shows_the_time_that_is_left_of_the_job() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=100, color_system=None))
    screen.show("Running", ROWS, "45%, 3m20s left, loss 0.31")
    screen.close()
    assert "Running: 45%, 3m20s left, loss 0.31" in out.getvalue()


def test_brackets_in_metrics_are_not_markup() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=100, color_system=None))
    screen.show("Running", ROWS, "45%, loss [red]1")
    screen.close()
    assert "loss [red]1" in out.getvalue()


def test_a_file_gets_a_line_for_each_state_and_none_for_progress() -> None:
    out = io.StringIO()
    screen = PlainScreen(out)
    for progress in ("", "45%", "46%"):
        screen.show("Running", ROWS, progress)
    assert out.getvalue() == "-- the job is Running\n-- worker-0 is Running\n"


def test_one_thread_writes_the_log_and_the_table() -> None:
    """A second one may draw the table between the erasing of the old one and the line that takes its place."""
    before = threading.active_count()
    screen = TerminalScreen(Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None))
    screen.show("Running", ROWS)
    assert threading.active_count() == before
    screen.close()


async def test_a_burst_of_changes_is_drawn_seldom_and_ends_with_the_last() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=100, color_system=None))
    for percent in range(100):
        screen.show("Running", ROWS, f"{percent}%")
    while "99%" not in out.getvalue():
        await asyncio.sleep(0.01)
    assert len([percent for percent in range(100) if f"Running: {percent}%" in out.getvalue()]) < 10
    screen.close()
