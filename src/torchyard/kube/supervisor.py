"""Keeps the concurrent parts of a process running: a part that raises is logged, counted and started again.

A part is an async function that runs until it is cancelled. It is named after what it does; parts of a part are named
after both (`kueue/recorder`). Parts find the supervisor of their process through a context variable, which their tasks
inherit, so that a controller can be used without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

log = logging.getLogger(__name__)

Part = Callable[[], Awaitable[None]]

_MIN_DELAY, _MAX_DELAY = 0.1, 30.0
# A part that ran this long is healthy again: its next failure starts with the shortest delay.
_HEALTHY_AFTER = 60.0
_CANCEL_AGAIN_SECONDS = 1.0


class PartFailure(NamedTuple):
    """One failure of a part."""

    part: str
    error: BaseException
    delay: float  # seconds until it is started again
    failures: int  # how many times it has failed so far


@dataclass(frozen=True, slots=True)
class PartStatus:
    """What a part does now, and how it failed before."""

    part: str
    state: Literal["Running", "Restarting"]
    since: datetime  # of this state
    failures: int  # since the start of the process
    last_error: str  # empty: it has never failed


class Supervisor:
    """Runs parts. `on_failure` is called for each failure; it must not raise."""

    def __init__(
        self,
        on_failure: Callable[[PartFailure], None] = lambda _failure: None,
        *,
        min_delay: float = _MIN_DELAY,
        max_delay: float = _MAX_DELAY,
    ) -> None:
        self._on_failure = on_failure
        self._min_delay, self._max_delay = min_delay, max_delay
        self.failures: dict[str, int] = {}  # by part, since the start of the process
        self._last_errors: dict[str, str] = {}
        self._states: dict[str, tuple[Literal["Running", "Restarting"], datetime]] = {}

    def down(self) -> dict[str, str]:
        """The parts that do not run now, and their last errors."""
        return {part: self._last_errors[part] for part, (state, _) in self._states.items() if state == "Restarting"}

    def statuses(self) -> list[PartStatus]:
        """The parts by name."""
        return [
            PartStatus(part, state, since, self.failures.get(part, 0), self._last_errors.get(part, ""))
            for part, (state, since) in sorted(self._states.items())
        ]

    async def run(self, name: str, part: Part) -> None:
        """Run a part until this is cancelled."""
        _current.set((self, name))
        try:
            await self._run(name, part)
        finally:
            self._states.pop(name, None)

    async def _run(self, name: str, part: Part) -> None:
        delay = self._min_delay
        while True:
            started = time.monotonic()
            self._states[name] = ("Running", datetime.now(UTC))
            # A task of its own: its cancellation, or that of something it waits for, is not ours.
            task = asyncio.ensure_future(part())
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                await _stop(name, task)
                raise
            error = asyncio.CancelledError() if task.cancelled() else task.exception() or RuntimeError("it returned")
            if time.monotonic() - started >= _HEALTHY_AFTER:
                delay = self._min_delay
            self._report(name, error, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, self._max_delay)

    def _report(self, name: str, error: BaseException, delay: float) -> None:
        count = self.failures[name] = self.failures.get(name, 0) + 1
        self._last_errors[name] = describe(error)
        self._states[name] = ("Restarting", datetime.now(UTC))
        log.error(
            "part failed and is started again: part=%s failures=%d delay_seconds=%.1f",
            name,
            count,
            delay,
            exc_info=error,
        )
        self._on_failure(PartFailure(name, error, delay, count))


async def _stop(name: str, task: asyncio.Future[None]) -> None:
    """Cancel a part until it ends: code that completes at the same moment can miss a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("part failed while it was stopped: part=%s", name, exc_info=error)


def describe(error: BaseException) -> str:
    """The error in one line; of a group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


_current: ContextVar[tuple[Supervisor, str] | None] = ContextVar("supervisor", default=None)


async def run_parts(**parts: Part) -> None:
    """Run the parts of the current part at the same time, each with its own restarts, until this is cancelled."""
    supervisor, owner = _current.get() or (Supervisor(), "")
    async with asyncio.TaskGroup() as group:
        for name, part in parts.items():
            full_name = f"{owner}/{name}" if owner else name
            group.create_task(supervisor.run(full_name, part), name=full_name)
