"""A program in a pseudo-terminal, and the screen that it draws."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

# The sequences that `yard tui` may write: position, erase a line or all, styles, modes. Others are an error here.
_SEQUENCE = re.compile(r"\x1b\[(?:(\d+);(\d+)H|(2K)|(2J)|[0-9;]*m|\?(\d+)([hl]))")


class Terminal:
    """`screen` is what a person would see."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], width: int, height: int) -> None:
        self._master, slave = pty.openpty()
        self.modes: dict[str, bool] = {}
        self._width = width
        self._rows = [""] * height
        self._row, self._text = 0, ""
        self.resize(width, height)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=dict(environment), start_new_session=True
        )
        os.close(slave)

    @property
    def screen(self) -> str:
        return "\n".join(row.rstrip() for row in self._rows)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._width, self._rows = width, [""] * height
        self._row = min(self._row, height - 1)  # the rest of an earlier frame may still come
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, seconds: float = 30.0) -> str:
        """Wait until the screen has a text, or matches it as a regular expression; returns the screen."""
        deadline = time.monotonic() + seconds
        while not re.search(text, self.screen):
            left = deadline - time.monotonic()
            assert left > 0 and self._read(left), f"{text!r} does not appear on the screen:\n{self.screen}"
        return self.screen

    def wait_for_end(self, seconds: float = 30.0) -> int:
        deadline = time.monotonic() + seconds
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program has closed its end
            return False
        self._text += data.decode(errors="surrogateescape")
        self._draw()
        return bool(data)

    def _draw(self) -> None:
        while self._text:
            before, escape, _ = self._text.partition("\x1b")
            if before:
                self._rows[self._row] = (self._rows[self._row] + before)[: self._width]
                self._text = self._text[len(before) :]
            if not escape:
                return
            match = _SEQUENCE.match(self._text)
            if match is None:
                assert len(self._text) < 16, f"not a sequence that is allowed: {self._text[:16]!r}"
                return  # the rest of it follows
            self._apply(match)
            self._text = self._text[match.end() :]

    def _apply(self, match: re.Match[str]) -> None:
        row, column, line, everything, mode, switch = match.groups()
        if row:
            assert column == "1"
            self._row = min(int(row), len(self._rows)) - 1
            self._rows[self._row] = ""
        elif everything:
            self._rows = [""] * len(self._rows)
        elif mode:
            self.modes[mode] = switch == "h"
        elif line:
            self._rows[self._row] = ""


@contextmanager
def terminal(
    command: Sequence[str], environment: Mapping[str, str], width: int = 80, height: int = 24
) -> Iterator[Terminal]:
    opened = Terminal(command, environment, width, height)
    try:
        yield opened
    finally:
        opened.close()
