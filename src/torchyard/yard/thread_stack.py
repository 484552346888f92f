"""The stack of another thread, as text.

Frame objects of a running thread are not safe to follow in Python: between two of them the thread goes on, and CPython
may then take freed memory for the caller of a frame. faulthandler writes all stacks in C, while no other thread runs.
"""

from __future__ import annotations

import faulthandler
import os
import re
from dataclasses import dataclass
from pathlib import Path

_THREAD = re.compile(r"^(?:Current t|T)hread 0x0*([0-9a-f]+) ")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True, slots=True)
class StackFrame:
    file: str
    line: int
    function: str

    @property
    def location(self) -> str:
        """Such as `apiserver/store/store.py:120 _flush`."""
        _, marker, below = self.file.rpartition("/torchyard/")
        return f"{below if marker else Path(self.file).name}:{self.line} {self.function}"

    @property
    def name(self) -> str:
        """Of the function, with its module: `store._flush`."""
        return f"{Path(self.file).stem}.{self.function}"

    def is_in(self, file: str, function: str) -> bool:
        return self.file == file and self.function == function


class StackReader:
    """`read` may be called in any thread; `close` releases its file, which is in memory: no disk can block it."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0)

    def read(self, thread_id: int) -> list[StackFrame]:
        """The innermost first, at most the 100 that faulthandler writes; empty if the thread has ended."""
        self._file.seek(0)
        self._file.truncate()
        faulthandler.dump_traceback(self._file)
        self._file.seek(0)
        return parse_stack(self._file.read().decode(errors="replace"), thread_id)

    def close(self) -> None:
        self._file.close()


def parse_stack(text: str, thread_id: int) -> list[StackFrame]:
    """The frames of one thread in what faulthandler has written."""
    frames: list[StackFrame] = []
    is_wanted = False
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            is_wanted = int(thread[1], 16) == thread_id
        elif is_wanted and (frame := _FRAME.match(line)):
            frames.append(StackFrame(frame[1], int(frame[2]), frame[3]))
    return frames
