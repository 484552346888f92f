"""Lines out of the pieces in which a log arrives."""

from __future__ import annotations

import codecs


class LineSplitter:
    """`rest` is what has come of a line that is not over yet."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.rest = ""

    def of(self, piece: bytes) -> list[str]:
        """The lines that a piece ends."""
        *lines, self.rest = (self.rest + self._decoder.decode(piece)).split("\n")
        return lines
