"""Shows a job until it has finished: HTML that changes in a notebook, a table that changes in a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

from torchyard.sdk.views import JobSnapshot

PERIOD_SECONDS = 1.0


class _Screen(Protocol):
    def show(self, view: JobSnapshot) -> None: ...

    def close(self) -> None: ...


class _NotebookScreen:
    def __init__(self) -> None:
        self._is_shown = False

    def show(self, view: JobSnapshot) -> None:
        from IPython.display import HTML, display, update_display

        # one identifier for each screen, so that a second cell does not change the first
        (update_display if self._is_shown else display)(HTML(view._repr_html_()), display_id=f"torchyard-{id(self)}")
        self._is_shown = True

    def close(self) -> None:
        pass


class _TerminalScreen:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()

    def show(self, view: JobSnapshot) -> None:
        self._live.update(view.__rich__(), refresh=True)

    def close(self) -> None:
        self._live.stop()


def in_notebook() -> bool:
    """Whether the program runs in a kernel of Jupyter."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


async def show_until_done(read: Callable[[], Awaitable[JobSnapshot]], is_done: Callable[[], bool]) -> JobSnapshot:
    """Show a job again every second. Returns its last view."""
    screen: _Screen = _NotebookScreen() if in_notebook() else _TerminalScreen()
    try:
        while True:
            view = await read()
            screen.show(view)
            if is_done():
                return view
            await asyncio.sleep(PERIOD_SECONDS)
    finally:
        screen.close()
