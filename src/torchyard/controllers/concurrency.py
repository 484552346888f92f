"""Writes that go side by side: each waits for the disk, and one after the other they would be as slow as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do all of it, whatever becomes of each; then raise the first error, if there was one."""
    answers: list[T] = []
    for one in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
        answers.append(one)
    return answers
