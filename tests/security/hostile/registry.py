"""Verdicts, and the list of cases.

A verdict is `allowed`, `denied:<errno>`, `absent` (the file or device does not exist), `masked` (it exists, and is
empty), `killed:<signal>`, `timeout`, or a value: the tests compare values as they are.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

Verdict = Any
Case = Callable[[], Verdict]

ALLOWED, ABSENT, MASKED = "allowed", "absent", "masked"
CASES: dict[str, Case] = {}
_SECONDS = 90


def case(function: Case) -> Case:
    """Register a case under the name of its topic and its function."""
    topic = function.__module__.rpartition(".")[2]
    CASES[f"{topic}.{function.__name__}"] = function
    return function


def add(name: str, function: Callable[..., Verdict], *arguments: object) -> None:
    """Register one of several cases that differ in their arguments."""
    CASES[name] = functools.partial(function, *arguments)


def denied(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOTDIR):
        return ABSENT
    return f"denied:{errno.errorcode.get(error.errno or 0, str(error.errno))}"


def attempt(action: Callable[..., object], *arguments: object) -> str:
    """The verdict of an action that raises OSError if it is refused."""
    try:
        action(*arguments)
    except OSError as error:
        return denied(error)
    return ALLOWED


def read(path: str) -> str:
    """Whether a file or directory can be read, and holds something."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return ALLOWED if os.listdir(path) else MASKED
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return denied(error)
    try:
        return ALLOWED if os.read(descriptor, 64) else MASKED
    except BlockingIOError:
        return ALLOWED  # it can be read; there is nothing at the moment
    except OSError as error:
        return denied(error)
    finally:
        os.close(descriptor)


def open_for_writing(path: str) -> str:
    """Whether a file can be opened for writing; nothing is written."""
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)))


def write_back(path: str) -> str:
    """Whether a file can be written: it gets the value that it has."""
    try:
        with open(path, "rb") as file:
            value = file.read()
        descriptor = os.open(path, os.O_WRONLY)
    except OSError as error:
        return denied(error)
    try:
        os.write(descriptor, value)
    except OSError as error:
        return denied(error)
    finally:
        os.close(descriptor)
    return ALLOWED


def _unshare_mounts() -> None:
    """Where a case may change mounts, it changes a copy."""
    from tests.security.hostile import kernel

    kernel.unshare("mnt")
    kernel.mount(b"none", b"/", None, kernel.MS_REC | kernel.MS_PRIVATE)


def in_child(function: Case) -> Verdict:
    """Run a case in a process of its own: what it does to itself affects no other case."""
    near, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(near)
            os.setsid()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_SECONDS)
            if "ESCAPE_OWN_MOUNTS" in os.environ:
                _unshare_mounts()
            try:
                verdict = function()
            except OSError as error:
                verdict = denied(error)
            except BaseException:  # the report of a broken case is its verdict
                verdict = f"error: {traceback.format_exc()}"
            with os.fdopen(far, "w") as out:
                json.dump(verdict, out)
        finally:
            os._exit(0)
    os.close(far)
    with os.fdopen(near) as report:
        text = report.read()
    _, status = os.waitpid(pid, 0)
    if text:
        return json.loads(text)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return "timeout" if number == signal.SIGALRM else f"killed:{signal.Signals(number).name if number else status}"


def run(names: Iterable[str]) -> None:
    """Print one JSON line per case."""
    for name in names:
        sys.stdout.write(json.dumps({"case": name, "verdict": in_child(CASES[name])}) + "\n")
        sys.stdout.flush()
