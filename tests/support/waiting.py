"""Waiting for what another process does in its own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 30.0


def eventually(claim: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Returns as soon as the claim holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:.0f} s"
        time.sleep(0.02)


async def first_answer(
    question: Callable[[], Awaitable[T | None]], what: str = "it", *, seconds: float = PATIENCE, pause: float = 0.02
) -> T:
    """The first answer of an async question that is true; AssertionError when none is in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := await question()):
        assert loop.time() < deadline, f"{what} did not happen in {seconds:.0f} s"
        await asyncio.sleep(pause)
    return answer
