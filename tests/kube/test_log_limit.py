"""Repeated log lines are limited; others are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from torchyard.kube.log_limit import LogLimit

log = logging.getLogger("tests.log_limit")


class Lines(logging.Handler):
    """Keeps what is logged. The clock is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lines: list[str] = []
        self.addFilter(LogLimit(lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)


def _fail(number: int) -> None:
    log.warning("reconcile failed: key=%d", number)


def test_of_a_line_that_repeats_fifty_are_logged_and_then_one_a_second(lines: Lines) -> None:
    for number in range(1000):
        _fail(number)
    assert lines.lines == [f"reconcile failed: key={number}" for number in range(50)]
    lines.now = 1.0
    for number in range(1000, 1100):
        _fail(number)
    assert lines.lines[50:] == ["reconcile failed: key=1000 suppressed=950"]


def test_the_limit_is_as_before_after_a_pause(lines: Lines) -> None:
    for number in range(100):
        _fail(number)
    lines.now = 100.0
    for number in range(50):
        _fail(number)
    assert len(lines.lines) == 100
    assert lines.lines[50] == "reconcile failed: key=0 suppressed=50"


def test_other_lines_are_not_limited_by_a_flood(lines: Lines) -> None:
    for number in range(1000):
        _fail(number)
    log.warning("another problem")
    log.error("a part failed")
    assert lines.lines[50:] == ["another problem", "a part failed"]


def test_the_same_call_with_another_exception_is_another_line(lines: Lines) -> None:
    def raise_and_log(error: Exception) -> None:
        try:
            raise error
        except Exception:
            log.exception("part failed: %s", "100%")

    for _ in range(100):
        raise_and_log(KeyError("a"))
    raise_and_log(ValueError("b"))
    assert len(lines.lines) == 51
    lines.now = 2.0
    raise_and_log(KeyError("a"))
    assert lines.lines[-1] == "part failed: 100% suppressed=50"


def test_the_record_of_ordinary_work_has_room_for_a_thousand_lines_at_once(lines: Lines) -> None:
    for number in range(1500):
        log.info("event recorded: number=%d", number)
    assert len(lines.lines) == 1000


def test_many_different_lines_are_counted_within_a_limit(lines: Lines) -> None:
    limit = LogLimit()
    for number in range(5000):
        assert limit.filter(logging.LogRecord("n", logging.WARNING, "file.py", number, "text", (), None))
    assert len(limit._repetitions) == 1000
