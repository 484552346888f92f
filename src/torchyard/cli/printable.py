"""Texts of manifests and programs on a terminal: no control character of them reaches it."""

from __future__ import annotations

import re

from torchyard.api.escapes import ESCAPE_SEQUENCE

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = "\x1b[0m"


def mask_unprintable(text: str) -> str:
    """The text with a question mark for each character that is not printable, line breaks included."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def log_text(text: str, *, colours: bool = True) -> str:
    """A line of a log with its tabs and, if wanted, its colours, without what moves the cursor or sets the title."""
    if text.isprintable():
        return text
    parts, end, is_coloured = [], 0, False
    for escape in ESCAPE_SEQUENCE.finditer(text):
        parts.append(_mask_line(text[end : escape.start()]))
        if colours and _COLOUR.fullmatch(escape[0]):
            parts.append(escape[0])
            is_coloured = True
        end = escape.end()
    parts.append(_mask_line(text[end:]))
    return "".join(parts) + (_RESET if is_coloured else "")


def _mask_line(text: str) -> str:
    return "\t".join(mask_unprintable(part) for part in text.split("\t"))
