"""Log chunks into lines."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

# A program that draws over its line, such as a progress bar, ends it with a carriage return.
_END = re.compile(r"\r*\n|\r+(?=[^\r\n])")


class LogLine(NamedTuple):
    """`overwritten` marks a line that the program drew over."""

    text: str
    overwritten: bool = False


class LineSplitter:
    """`rest` holds the incomplete last line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.rest = ""

    def of(self, piece: bytes) -> list[LogLine]:
        """The lines that this chunk completes. Of a line that was drawn over, an empty one is left out."""
        text = self.rest + self._decoder.decode(piece)
        lines: list[LogLine] = []
        start = 0
        for end in _END.finditer(text):
            overwritten = not end[0].endswith("\n")
            if end.start() > start or not overwritten:
                lines.append(LogLine(text[start : end.start()], overwritten))
            start = end.end()
        self.rest = text[start:]
        return lines
