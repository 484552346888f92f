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
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from torchyard.apiserver.metrics.event_loop import EventLoopMetrics
from torchyard.yard.settings import THRESHOLD_SECONDS

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
_HANDLE_RUN: CodeType = asyncio.Handle._run.__code__
_RUN_ONCE: CodeType | None = getattr(getattr(asyncio.BaseEventLoop, "_run_once", None), "__code__", None)


@dataclass(frozen=True, slots=True)
class _Sample:
    root: FrameType  # the outermost frame of the callback
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

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._base = _base_frame(sys._getframe())
        self._interval = self.threshold / _TICKS
        self._minimum = self.threshold - self._interval
        self._schedule()
        self._thread = threading.Thread(target=self._run, name="event-loop-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._timer.cancel()
        self._thread.join(timeout=5.0)
        self._base = None
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
            self._was_late(late, time.thread_time() - self._cpu)
        if self._samples:
            self._samples = []
        self._schedule()

    def _was_late(self, late: float, cpu: float) -> None:
        samples = self._samples
        roots = {id(sample.root) for sample in samples}
        callback = UNKNOWN if not samples else _name(samples[-1].root) if len(roots) == 1 else SEVERAL
        is_waiting = len(samples) > 1 and len(roots) == 1
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
            sample = self._sample()
            if sample is not None and len(self._samples) < _MAX_SAMPLES:
                self._samples.append(sample)
            if sample is not None and late >= repeat_at:
                repeat_at += _REPEAT_SECONDS
                callback = _name(sample.root)
                log.warning("event loop is blocked: seconds=%.1f callback=%s stack=%r", late, callback, sample.stack)

    def _sample(self) -> _Sample | None:
        """What the loop's thread executes; None if it waits for events."""
        frame = sys._current_frames().get(self._thread_id)
        root = self._root(frame)
        return None if root is None else _Sample(root, _format_stack(frame, root))

    def _root(self, frame: FrameType | None) -> FrameType | None:
        """The outermost frame of the callback that runs; None while the loop waits for events."""
        inner: FrameType | None = None
        # The loop's thread goes on while this one looks: what a frame calls its caller may be another object by now.
        while isinstance(frame, FrameType) and frame is not self._base and frame.f_code is not _HANDLE_RUN:
            if frame.f_code is _RUN_ONCE:
                return None
            inner, frame = frame, frame.f_back
        return inner


def _base_frame(frame: FrameType | None) -> FrameType | None:
    """The frame that runs the loop: the one below the outermost coroutine of the caller.

    Only for loops in C, such as uvloop, whose own calls have no frames. asyncio's loop is recognized by its code.
    """
    base: FrameType | None = None
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            base = frame.f_back
        frame = frame.f_back
    return base


def _name(root: FrameType) -> str:
    return root.f_code.co_qualname


def _format_stack(frame: FrameType | None, root: FrameType) -> str:
    """Innermost first: `apiserver/store/store.py:120 Store._flush < …`, up to the callback itself."""
    lines: list[str] = []
    while isinstance(frame, FrameType) and len(lines) < _MAX_FRAMES:
        lines.append(f"{_short_path(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_qualname}")
        if frame is root:
            break
        frame = frame.f_back
    else:
        lines.append(f"… {_name(root)}")
    return " < ".join(lines)


def _short_path(filename: str) -> str:
    _, marker, below = filename.rpartition("/torchyard/")
    return below if marker else Path(filename).name
