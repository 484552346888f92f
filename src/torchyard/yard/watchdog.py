"""Records what blocks the event loop: for how long, and where the code was.

A timer of the loop runs every quarter of the threshold and notes when it is due next. A thread looks at that time.
While the timer is not overdue, it does nothing more. When it is overdue, the thread samples the stack of the loop's
thread until the timer has run. The timer then knows how late it is and what the samples show.

C code that holds the GIL keeps the thread from sampling until it returns; its caller is still on the stack then. A
process that was stopped, or got no CPU, has used no CPU time: that is no one's callback and is not recorded as one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchyard.apiserver.metrics.event_loop import EventLoopMetrics
from torchyard.yard.settings import THRESHOLD_SECONDS
from torchyard.yard.thread_stack import StackFrame, StackReader

log = logging.getLogger(__name__)

# The timer runs so many times within one threshold. It is not known when between two runs a callback began, so every
# callback over the threshold is recorded, and some that take at least three quarters of it.
_TICKS = 4
_MAX_SAMPLES = 64
# A callback that does not return is logged again and again.
_REPEAT_SECONDS = 5.0
# One line per callback in this time; the next line says how many were left out.
_LOG_SECONDS = 10.0
# The pause from which on a stopped process is logged.
_STOPPED_SECONDS = 1.0
# The share of the time for which a blocked loop uses the CPU, unless the samples show one callback that waits.
_CPU_SHARE = 0.25
_MAX_FRAMES = 14
_MAX_CALLBACKS = 256
UNKNOWN, SEVERAL = "unknown", "several"
# asyncio's own functions, as they are in a stack: what runs a callback, and what waits for events.
_HANDLE_RUN = (asyncio.Handle._run.__code__.co_filename, asyncio.Handle._run.__name__)
_RUN_ONCE = (asyncio.BaseEventLoop.run_forever.__code__.co_filename, "_run_once")


@dataclass(frozen=True, slots=True)
class _Sample:
    task: asyncio.Task[Any] | None
    callback: str  # the name of its outermost function
    stack: str


@dataclass(slots=True)
class _LogLimit:
    """When a callback was last logged, and how many lines were left out since."""

    logged_at: float = float("-inf")
    suppressed: int = 0


@dataclass
class LoopWatchdog:
    """Started and stopped in the thread of the event loop that it watches."""

    metrics: EventLoopMetrics
    threshold: float = THRESHOLD_SECONDS
    _limits: dict[str, _LogLimit] = field(default_factory=dict)
    _samples: list[_Sample] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    # Held while a sample is taken: C code may leave the thread no time before the end of the callback.
    _sampling: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._base = _base_function(sys._getframe())
        self._reader = StackReader()
        self._interval = self.threshold / _TICKS
        self._minimum = self.threshold - self._interval
        self._schedule()
        self._thread = threading.Thread(target=self._run, name="event-loop-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._timer.cancel()
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._reader.close()
        self._samples = []

    # In the loop

    def _schedule(self) -> None:
        self._cpu = time.thread_time()
        self._due = time.monotonic() + self._interval
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        late = time.monotonic() - self._due
        self.metrics.lag.observe(max(0.0, late))
        if late >= self._minimum:
            cpu = time.thread_time() - self._cpu
            with self._sampling:
                self._was_late(late, cpu)
        if self._samples:
            self._samples = []
        self._schedule()

    def _was_late(self, late: float, cpu: float) -> None:
        samples = self._samples
        callbacks = {(id(sample.task), sample.callback) for sample in samples}
        callback = UNKNOWN if not samples else samples[-1].callback if len(callbacks) == 1 else SEVERAL
        is_waiting = len(samples) > 1 and len(callbacks) == 1
        if cpu >= late * _CPU_SHARE or is_waiting:
            self.record(callback, samples[-1].stack if samples else "", late, cpu)
        elif late >= _STOPPED_SECONDS:
            self.metrics.stopped_seconds += late
            log.warning("process was stopped: seconds=%.1f", late)

    def record(self, callback: str, stack: str, seconds: float, cpu: float) -> None:
        self.metrics.count_blocked(callback, seconds)
        if len(self._limits) >= _MAX_CALLBACKS:
            self._limits.clear()
        limit = self._limits.setdefault(callback, _LogLimit())
        now = time.monotonic()
        if now - limit.logged_at < _LOG_SECONDS:
            limit.suppressed += 1
            return
        log.warning(
            "event loop was blocked: seconds=%.3f cpu=%.3f callback=%s suppressed=%d stack=%r",
            *(seconds, cpu, callback, limit.suppressed, stack),
        )
        limit.logged_at, limit.suppressed = now, 0

    # In the thread

    def _run(self) -> None:
        repeat_at = 0.0
        while not self._stopping.wait(self._interval):
            late = time.monotonic() - self._due
            if late < self._interval:
                repeat_at = _REPEAT_SECONDS
                continue
            with self._sampling:
                sample = self._sample()
                if sample is not None and len(self._samples) < _MAX_SAMPLES:
                    self._samples.append(sample)
            if sample is not None and late >= repeat_at:
                repeat_at += _REPEAT_SECONDS
                log.warning(
                    "event loop is blocked: seconds=%.1f callback=%s stack=%r", late, sample.callback, sample.stack
                )

    def _sample(self) -> _Sample | None:
        """What the loop's thread executes; None if it waits for events."""
        task = asyncio.current_task(self._loop)
        callback = self._callback(self._reader.read(self._thread_id))
        if callback and callback[-1].is_in(*_TICK):  # what blocked the loop has just ended
            return None
        return _Sample(task, callback[-1].name, _format_stack(callback)) if callback else None

    def _callback(self, stack: Sequence[StackFrame]) -> Sequence[StackFrame]:
        """The frames of the callback that runs; none while the loop waits for events."""
        for number, frame in enumerate(stack):
            if frame.is_in(*_RUN_ONCE):
                return []
            if frame.is_in(*_HANDLE_RUN) or (self._base is not None and frame.is_in(*self._base)):
                return stack[:number]
        return stack


def _base_function(frame: FrameType | None) -> tuple[str, str] | None:
    """File and name of what runs the loop: the function below the outermost coroutine of the caller.

    Only for loops in C, such as uvloop, whose own calls have no frames. asyncio's loop is recognized by its code.
    """
    base: FrameType | None = None
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            base = frame.f_back
        frame = frame.f_back
    return None if base is None else (base.f_code.co_filename, base.f_code.co_name)


def _format_stack(callback: Sequence[StackFrame]) -> str:
    """Innermost first: `apiserver/store/store.py:120 _flush < …`, up to the callback itself."""
    lines = [frame.location for frame in callback[:_MAX_FRAMES]]
    if len(callback) > _MAX_FRAMES:
        lines.append(f"… {callback[-1].name}")
    return " < ".join(lines)


_TICK = (LoopWatchdog._tick.__code__.co_filename, LoopWatchdog._tick.__name__)
