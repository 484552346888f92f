"""Loading the modules of a plane's parts while the server answers."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from types import ModuleType

# Python hands over to a waiting thread after 5 ms, and the event loop waits several times in the course of a request.
_SWITCH_SECONDS = 0.0005


async def load(name: str) -> ModuleType:
    """Import a module in a thread, which leaves the event loop the processor whenever it has something to do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        return await asyncio.to_thread(import_module, name)
    finally:
        sys.setswitchinterval(before)
