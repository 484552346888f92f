"""Requests whose effect the caller has to know, also if it is interrupted while they are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`. If this task is cancelled meanwhile, wait for the end of `work` before the cancellation is raised.

    A request that is cancelled may have been carried out by the server. A second cancellation does not wait.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is raised instead
        raise
