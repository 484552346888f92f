"""Log chunks into lines."""

from __future__ import annotations

import codecs


class LineSplitter:
    """`rest` holds the incomplete last line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.rest = ""

    def of(self, piece: bytes) -> list[str]:
        """The lines that this chunk completes."""
        *lines, self.rest = (self.rest + self._decoder.decode(piece)).split("\n")
        return lines
