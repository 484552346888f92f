"""Concurrent tasks that end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

Runnable = Coroutine[Any, Any, None]


async def run_until_first_exit(*works: Runnable) -> None:
    """Run all until the first one ends, then cancel the others; raises its error, if it has one."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
