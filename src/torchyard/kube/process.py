"""How a process that serves or watches for long is set up: a fast event loop, a cycle collector that keeps still."""

from __future__ import annotations

import asyncio
import contextlib
import gc


def prefer_uvloop() -> None:
    """Before the loop is made."""
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def tune_garbage_collector() -> None:
    """Spare Python's cycle collector what lives for ever, and let it look less often: objects here are trees.

    The later it looks, the more is gone by itself: a workload's next state soon replaces the one before. With 10,000
    new objects for a look it took a twelfth of the time in which thousands of workloads pass, with 50,000 a thirtieth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()
