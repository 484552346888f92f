"""Threads for the node's blocking work: a file server that does not answer holds up pods, and no other part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")

# Each pod with such a volume takes one.
_threads = ThreadPoolExecutor(32, thread_name_prefix="node")


async def in_thread(
    function: Callable[_Arguments, _Result], *arguments: _Arguments.args, **options: _Arguments.kwargs
) -> _Result:
    """As `asyncio.to_thread`."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *arguments, **options))
