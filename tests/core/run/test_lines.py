"""Log chunks become lines, whatever the chunks cut through."""

from __future__ import annotations

import pytest

from torchyard.core.run.line_splitter import LineSplitter, LogLine

TEXT = "a\r\n\r 10%|#   |\r 20%|##  |\rdone \N{BLACK SQUARE}\n\nrest"
LINES = [
    LogLine("a"),
    LogLine(" 10%|#   |", True),
    LogLine(" 20%|##  |", True),
    LogLine("done \N{BLACK SQUARE}"),
    LogLine(""),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_the_lines_do_not_depend_on_the_chunks(size: int) -> None:
    splitter, data = LineSplitter(), TEXT.encode()
    lines = [line for start in range(0, len(data), size) for line in splitter.of(data[start : start + size])]
    assert lines == LINES
    assert splitter.rest == "rest"


def test_a_line_that_is_drawn_over_is_complete_when_the_next_begins() -> None:
    splitter = LineSplitter()
    assert splitter.of(b"\r 10%|#") == []
    assert splitter.of(b"\r 20%|##") == [LogLine(" 10%|#", True)]
    assert splitter.of(b"\r") == []
    assert splitter.of(b"\n") == [LogLine(" 20%|##")]
