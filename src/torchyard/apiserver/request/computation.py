"""Runs the computations of large requests in worker threads, so that the event loop goes on.

Decoding, defaulting and validating an object of three megabytes takes seconds in Python. A thread that computes gives
the interpreter's lock away every few milliseconds, so the loop keeps serving all other requests meanwhile. A small
request is computed at once: the way to a thread and back would take longer.

Only a computation that reads and changes what belongs to its request may run here. The store, the caches of admission
and everything else that the loop changes stay in the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from torchyard.api import errors

T = TypeVar("T")

# The size of the documents from which on a computation runs in a thread: JSON that takes about 10 ms.
LARGE_BYTES = 32 * 1024
# More threads would not compute faster, and the loop would wait for the lock behind all of them.
THREADS = 2
# As kube-apiserver's --request-timeout.
DEADLINE_SECONDS = 60.0


_THREAD_PREFIX = "apiserver-computation"
_executor = ThreadPoolExecutor(THREADS, thread_name_prefix=_THREAD_PREFIX)


class _Direct:
    """Whether `compute` is running a function without a thread. Plain, since every step of every request sets it."""

    is_running = False


class NeedsThread(Exception):
    """Raised by a function that `compute` runs at once, when it finds that it takes long; it starts again in a thread.

    A size says little about the cost of an expression.
    """


def is_direct() -> bool:
    """Whether the present function was called by `compute` without a thread, and so may raise `NeedsThread`."""
    return _Direct.is_running and not threading.current_thread().name.startswith(_THREAD_PREFIX)


class _DeadlineExceeded(BaseException):
    """Raised in a thread whose computation has passed its deadline. No handler of ordinary errors catches it."""


async def compute(size: int, function: Callable[..., T], *args: Any, deadline: float = DEADLINE_SECONDS) -> T:
    """The result of a function, computed in a thread if `size`, in bytes, is large. 504 after the deadline."""
    if size <= LARGE_BYTES:
        _Direct.is_running = True
        try:
            return function(*args)
        except NeedsThread:
            pass
        finally:
            _Direct.is_running = False
    computation = _Computation(function, args)
    future = asyncio.get_running_loop().run_in_executor(_executor, computation.run)
    try:
        async with asyncio.timeout(deadline):
            return await future
    except TimeoutError:
        computation.interrupt()
        raise errors.timeout("request did not complete within the allotted timeout") from None


class _Computation(Generic[T]):
    """One call of a function in a thread, which `interrupt` ends at the next instruction in Python."""

    def __init__(self, function: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._lock = threading.Lock()
        self._thread: int | None = None  # while it runs

    def run(self) -> T:
        try:
            with self._lock:
                self._thread = threading.get_ident()
            try:
                return self._function(*self._args)
            finally:
                with self._lock:
                    self._thread = None
                _pass_pending_exception()
        except _DeadlineExceeded:
            raise TimeoutError from None

    def interrupt(self) -> None:
        """End the computation if it still runs. Its request is over: nothing awaits the result."""
        with self._lock:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(_DeadlineExceeded)
                )


def _pass_pending_exception() -> None:
    """The interpreter raises a pending exception at the start of a function, and so before the thread goes on."""
