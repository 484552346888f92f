"""Lines, keys, plots and scrolling of `yard tui`, without a terminal."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from torchyard.cli.tui import metrics_page
from torchyard.cli.tui.braille import plot
from torchyard.cli.tui.jobs_page import JobsPage
from torchyard.cli.tui.live_jobs import LiveJobs
from torchyard.cli.tui.log_buffer import MAX_LINES, LogBuffer
from torchyard.cli.tui.metrics_page import MetricsPage
from torchyard.cli.tui.page import SearchField
from torchyard.cli.tui.scrolling import ListCursor, TextWindow
from torchyard.cli.tui.styled_line import encode, plain, printable
from torchyard.cli.tui.terminal_keys import KeyDecoder
from torchyard.core.run.line_splitter import LogLine


@given(st.text(), st.integers(1, 40))
def test_no_text_writes_control_characters_or_more_cells_than_there_are(text: str, width: int) -> None:
    line = encode([(text, ""), (text, "")], width, colours=False)
    assert line.isprintable() and cell_len(line) <= width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1bcb", "ab"),
        ("a\tb", "a   b"),
        ("a\u202eb", "a?b"),
        ("a\x00\x9bb", "a??b"),
        ("100 %", "100 %"),
    ],
)
def test_escape_sequences_are_removed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    assert encode([("a", "red bold")], 5, colours=True) == "\x1b[31;1ma\x1b[0m"
    assert encode([("a", "red bold")], 5, colours=False) == "\x1b[1ma\x1b[0m"


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"jk/"], ["j", "k", "/"]),
        ([b"\x1b[A\x1bOB\x1b[5~\x1b[1;5C"], ["up", "down", "pageup", "right"]),
        ([b"\x1b[", b"B"], ["down"]),
        ([b"\r\x7f\x04\x03"], ["enter", "backspace", "ctrl-d", "ctrl-c"]),
        (["é".encode()[:1], "é".encode()[1:]], ["é"]),
        ([b"\x1b\x1b[A"], ["esc", "up"]),
        ([b"\x1b[200~\x1b[?1;2c"], []),
        ([b"\xff\xfe\x00"], []),
    ],
)
def test_keys_are_read_also_in_pieces(pieces: list[bytes], keys: list[str]) -> None:
    decoder = KeyDecoder()
    assert [key for piece in pieces for key in decoder.feed(piece)] == keys
    assert not decoder.is_waiting


def test_an_escape_that_nothing_follows_is_the_key() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == [] and decoder.is_waiting
    assert decoder.flush() == ["esc"] and decoder.flush() == []


@given(st.binary(max_size=40))
def test_any_bytes_of_a_terminal_are_read(data: bytes) -> None:
    decoder = KeyDecoder()
    keys = decoder.feed(data) + decoder.flush()
    assert all(key.isprintable() for key in keys)


def test_a_rising_curve_goes_from_the_lower_left_to_the_upper_right() -> None:
    lines = [plain(line) for line in plot([[(0.0, 0.0), (9.0, 9.0)]], 14, 4)]
    assert lines == ["        9│   ⡜", "         │  ⡜ ", "         │ ⡜  ", "        0│⡜   "]


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(st.floats(), st.floats()), max_size=20), max_size=4),
    st.integers(1, 60),
    st.integers(1, 12),
)
def test_any_numbers_make_a_plot_of_the_size(curves: Any, width: int, height: int) -> None:
    lines = plot(curves, width, height)
    assert len(lines) == height
    has_values = any(math.isfinite(x) and math.isfinite(y) for curve in curves for x, y in curve)
    dots = any("\u2801" <= character <= "\u28ff" for line in lines for character in plain(line))
    assert dots == has_values


def test_the_chosen_row_stays_chosen_when_rows_come_and_go() -> None:
    cursor = ListCursor()
    cursor.update(["b", "c", "d"])
    cursor.press("j")
    cursor.update(["a", "b", "c", "d"])
    assert cursor.index == 2
    cursor.update(["a"])
    assert cursor.index == 0
    cursor.update([str(number) for number in range(100)])
    cursor.press("G")
    assert cursor.window(10) == range(90, 100) and cursor.index == 99
    cursor.press("pageup")
    assert cursor.index == 89 and 89 in cursor.window(10)


def test_a_window_follows_the_end_until_it_is_moved() -> None:
    window = TextWindow(follow=True)
    assert window.window(100, 10) == range(90, 100)
    assert window.window(101, 10) == range(91, 101)
    window.press("k")
    assert window.window(150, 10) == range(90, 100)
    window.shift(40)
    assert window.window(110, 10) == range(50, 60)


def test_lines_of_replicas_are_merged_by_time_and_bounded() -> None:
    buffer = LogBuffer(lambda: None)
    buffer.add("worker-0", LogLine("2026-01-01T00:00:02.5Z b loss=0.5"))
    buffer.add("worker-1", LogLine("2026-01-01T00:00:01Z a loss=0.25"))
    buffer.add("worker-1", LogLine("2026-01-01T00:00:02.51Z c"))
    buffer.add("worker-0", LogLine("2026-01-01T00:00:03Z 50%", overwritten=True))
    buffer.add("worker-0", LogLine("without a time"))
    assert [line.text for line in buffer.lines] == ["a loss=0.25", "b loss=0.5", "c", "without a time"]
    assert {key: list(values) for key, values in buffer.metrics.items()} == {
        ("loss", "worker-0"): [0.5],
        ("loss", "worker-1"): [0.25],
    }
    for _ in range(MAX_LINES + 5000):
        buffer.add("worker-0", LogLine("2026-01-01T00:00:04Z x"))
    assert MAX_LINES <= len(buffer.lines) <= MAX_LINES + 1000
    assert buffer.removed + len(buffer.lines) == MAX_LINES + 5004


def test_lines_of_nodes_in_other_time_zones_are_in_the_order_of_time() -> None:
    buffer = LogBuffer(lambda: None)
    for time, text in (
        ("2026-01-01T01:00:02.5+01:00", "second"),
        ("2025-12-31T19:00:03.000000001-05:00", "fourth"),
        ("2026-01-01T00:00:03Z", "third"),
        ("2026-01-01T05:30:01.999999999+05:30", "first"),
        ("2026-01-01T99:00:00+01:00", "of a program"),
    ):
        buffer.add(text, LogLine(f"{time} {text}"))
    assert [line.text for line in buffer.lines] == ["first", "second", "third", "fourth", "of a program"]


def test_words_of_a_search_are_joined_by_and() -> None:
    search = SearchField()
    search.is_active = True
    for key in ("x", "ctrl-u", *"tRain -failed", "enter"):
        search.press(key)
    assert not search.is_active
    assert search.matches("my-train running") and not search.matches("train FAILED") and not search.matches("eval")


def test_ten_thousand_jobs_are_drawn_by_the_window() -> None:
    jobs = LiveJobs(cast(Any, None), "", lambda: None)
    created = datetime.now(UTC) - timedelta(days=30)
    metadata = {"namespace": "team", "creationTimestamp": created.isoformat()}
    for number in range(10_000):
        job = {"metadata": {**metadata, "name": f"job-{number:05}"}, "spec": {"parallelism": 2}, "status": {"ready": 1}}
        jobs._update("Job", "ADDED", job, None)
    page = JobsPage(jobs, "", cast(Any, None))
    page.press("G", cast(Any, None))
    lines = [plain(line) for line in page.render(80, 22)]
    page.press("G", cast(Any, None))
    lines = [plain(line) for line in page.render(80, 22)]
    assert len(lines) == 22 and lines[0].startswith("NAMESPACE  NAME")
    assert lines[-1].split() == ["team", "job-09999", "Job", "Running", "1/2", "30d"]
    jobs._update("Job", "DELETED", {"metadata": {**metadata, "name": "job-09999"}}, None)
    assert plain(page.render(80, 22)[-1]).split()[1] == "job-09998"


def test_only_the_curves_in_the_window_are_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {f"curve-{number:03}": {"": [(0.0, number), (1.0, number)]} for number in range(100)}
    data = SimpleNamespace(curves=lambda: curves, has_times=lambda _: True, problem="")
    plots: list[int] = []

    def count(*arguments: Any) -> Any:
        plots.append(1)
        return plot(*arguments)

    monkeypatch.setattr(metrics_page, "plot", count)
    page = MetricsPage(cast(Any, data), cast(Any, None))
    first = [plain(line) for line in page.render(80, 22)]
    assert len(first) == 22 and first[0].startswith("curve-000") and first[20].startswith("curve-002")
    assert len(plots) == 3
    for _ in range(5):
        page.press("j", cast(Any, None))
    moved = [plain(line) for line in page.render(80, 22)]
    assert moved[:17] == first[5:]
    page.press("G", cast(Any, None))
    last = [plain(line) for line in page.render(80, 22)]
    assert len(last) == 22 and last[12].startswith("curve-099") and last[-1] == ""
    assert len(plots) == 9
