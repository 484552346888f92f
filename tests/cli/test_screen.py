"""The table of `yard run` on a terminal."""

from __future__ import annotations

import asyncio
import io
import threading

from rich.console import Console

from torchyard.cli.printable import log_text
from torchyard.cli.screen import PlainScreen, Replica, TerminalScreen
from torchyard.core.run.line_splitter import LogLine
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


def test_several_jobs_have_a_table_each() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=100, color_system=None))
    screen._refreshed_at = float("inf")  # drawn at the end only
    with asyncio.Runner() as runner:

        async def show() -> None:
            screen.show("Running", [Replica("a-1", "Running")], job="a")
            screen.show("Failed", [Replica("b-1", "Error")], job="b")
            screen.show("Complete", [Replica("a-1", "Completed")], job="a")
            screen.close()

        runner.run(show())
    assert "a Complete" in out.getvalue() and "a Running" not in out.getvalue()
    assert "b Failed" in out.getvalue()


def test_a_file_names_the_job_of_each_state_if_there_are_several() -> None:
    out = io.StringIO()
    screen = PlainScreen(out)
    for _ in range(2):
        screen.show("Running", [], job="a")
        screen.show("Failed", [], job="b")
    assert out.getvalue() == "-- job a is Running\n-- job b is Failed\n"


def test_a_log_moves_no_cursor_and_keeps_its_lines_whole() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=40, color_system="standard"))
    line = "word " * 20 + "\x1b[32mgreen\x1b[0m\x1b[2J\x1b[1;1H\x1b]0;title\x07\x9b"
    screen.log("worker-0", LogLine(line))
    screen.close()
    shown = out.getvalue()
    assert "word " * 20 in shown and "\x1b[32mgreen\x1b[0m" in shown
    assert "\x1b[2J" not in shown and "\x1b[1;1H" not in shown and "title" not in shown and "\x9b" not in shown


def test_a_line_of_a_log_ends_its_colour() -> None:
    assert log_text("a\tb") == "a\tb"
    assert log_text("\x1b[31mred") == "\x1b[31mred\x1b[0m"
    assert log_text("\x1b[31mred", colours=False) == "red"
    assert log_text("\x1b[Aup\x07\x00") == "up??"
