"""The terminal: its alternate screen, raw input and size. Only lines that changed are written, for slow connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchyard.cli.terminal import raw_mode, write_output
from torchyard.cli.tui.styled_line import Line, encode
from torchyard.cli.tui.terminal_keys import ESCAPE_SECONDS, KeyDecoder
from torchyard.kube.container_streams import STDOUT

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # alternate screen, no cursor, no wrapping
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # drawn at once by terminals that know it
Size = tuple[int, int]  # columns, lines


class AlternateScreen:
    """`with screen.opened(press, resized):` while keys and changes of size arrive."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._colours = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self._shown: list[str] = []
        self._size: Size = (0, 0)
        self._keys = KeyDecoder()

    @property
    def size(self) -> Size:
        width, height = os.get_terminal_size(1)  # not that of COLUMNS and LINES, which do not change
        return (width, height) if width and height else (80, 24)  # of a serial line, which does not know its size

    @contextlib.contextmanager
    def opened(
        self, press: Callable[[str], None], resized: Callable[[], None], stop: Callable[[], None]
    ) -> Iterator[None]:
        """Call `press` for every key, `resized` when the size changes, and `stop` when the terminal is gone."""
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()
        with raw_mode():
            _write(_ENTER)
            loop.add_reader(descriptor, self._read, descriptor, press, stop)
            handlers = {signal.SIGWINCH: resized, signal.SIGTERM: stop, signal.SIGHUP: stop}
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
            try:
                yield
            finally:
                for number in handlers:
                    loop.remove_signal_handler(number)
                loop.remove_reader(descriptor)
                with contextlib.suppress(OSError):  # the terminal is gone
                    _write(_LEAVE)

    def draw(self, lines: Sequence[Line]) -> None:
        width, height = size = self.size
        encoded = [encode(line, width, colours=self._colours) for line in lines[:height]]
        encoded += [""] * (height - len(encoded))
        out = []
        if size != self._size:
            self._size, self._shown = size, [""] * height
            out.append("\x1b[2J")
        for number, (line, shown) in enumerate(zip(encoded, self._shown, strict=True), 1):
            if line != shown:
                out.append(f"\x1b[{number};1H\x1b[2K{line}")
        self._shown = encoded
        if out:
            _write(_BEGIN + "".join(out) + _END)

    def _read(self, descriptor: int, press: Callable[[str], None], stop: Callable[[], None]) -> None:
        try:
            data = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
            stop()
            return
        for key in self._keys.feed(data):
            press(key)
        if self._keys.is_waiting:
            asyncio.get_running_loop().call_later(ESCAPE_SECONDS, self._flush, press)

    def _flush(self, press: Callable[[str], None]) -> None:
        for key in self._keys.flush():
            press(key)


def _write(text: str) -> None:
    write_output(STDOUT, text.encode())
