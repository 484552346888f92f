"""Concurrent writes: each waits for the disk, so one after the other they would be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all of them, even if some fail; then raise the first error."""
    results: list[T] = []
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
