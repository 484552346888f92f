"""The controllers' log supports the options of `kubectl logs`, and can be followed."""

from __future__ import annotations

import logging
import time

import pytest

from torchyard.api.errors import StatusError
from torchyard.core.pod.logs import LogOptions
from torchyard.yard.controller_log import ControllerLog


def emit(own: ControllerLog, text: str, at: float = 0.0) -> None:
    record = logging.LogRecord("controllers", logging.INFO, __file__, 1, text, None, None)
    record.created = at or time.time()
    own.emit(record)


def log_of(*texts: str, lines: int = 100) -> ControllerLog:
    own = ControllerLog(lines)
    own.setFormatter(None)
    for number, text in enumerate(texts):
        emit(own, text, 1_700_000_000.0 + number)
    return own


async def read(own: ControllerLog, wanted: LogOptions) -> str:
    return b"".join([piece async for piece in own.read(wanted)]).decode()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LogOptions(), "one\ntwo\nthree\n"),
        (LogOptions(tail=2), "two\nthree\n"),
        (LogOptions(tail=0), ""),
        (LogOptions(tail=9), "one\ntwo\nthree\n"),
        (LogOptions(limit=5), "one\nt"),
        (LogOptions(limit=4, follow=True), "one\n"),
        (LogOptions(since="2023-11-14T22:13:21.000000000Z"), "two\nthree\n"),
        (LogOptions(tail=1, timestamps=True), "2023-11-14T22:13:22.000000000Z three\n"),
    ],
)
async def test_log_options_select_lines(wanted: LogOptions, expected: str) -> None:
    assert await read(log_of("one", "two", "three"), wanted) == expected


async def test_only_the_last_lines_are_kept() -> None:
    assert await read(log_of("one", "two", "three", lines=2), LogOptions()) == "two\nthree\n"


async def test_the_log_of_an_earlier_plane_is_rejected_with_the_reason() -> None:
    with pytest.raises(StatusError, match="not available"):
        await read(log_of("one"), LogOptions(previous=True))


async def test_a_follower_gets_every_line_once_and_in_order() -> None:
    own = log_of("one", lines=1000)
    stream = own.read(LogOptions(follow=True))
    seen = (await anext(stream)).decode()
    for number in range(3):
        emit(own, f"line {number}\nand more")
        while not seen.endswith(f"line {number}\nand more\n"):
            seen += (await anext(stream)).decode()
    await stream.aclose()
    assert seen == "one\n" + "".join(f"line {number}\nand more\n" for number in range(3))
