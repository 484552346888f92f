"""Waiting for a condition that another process fulfils."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from torchyard.api.times import to_rfc3339

T = TypeVar("T")
TIMEOUT = 120.0  # a machine that pauses for half a minute fails no test


def eventually(condition: Callable[[], bool], description: str, seconds: float = TIMEOUT) -> None:
    """Return as soon as the condition holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{description} did not happen in {seconds:.0f} s"
        time.sleep(0.02)


async def first_answer(
    query: Callable[[], Awaitable[T | None]],
    description: str = "the result",
    *,
    seconds: float = TIMEOUT,
    pause: float = 0.02,
) -> T:
    """Return the first true result of an async query; AssertionError when there is none in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := await query()):
        assert loop.time() < deadline, f"{description} did not happen in {seconds:.0f} s"
        await asyncio.sleep(pause)
    return answer


def passed(timestamp: str) -> Callable[[], Awaitable[bool]]:
    """A query: whether the second of an RFC 3339 timestamp is over."""

    async def query() -> bool:
        return to_rfc3339(datetime.now(UTC)) > timestamp

    return query
