"""Writes that go side by side: each waits for the disk, and one after the other they would be as slow as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Do all of it, whatever becomes of each; then raise the first error, if there was one."""
    results: list[T] = []
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
