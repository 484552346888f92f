"""Text without the escape sequences of terminals: colors, cursor movements, titles and links."""

from __future__ import annotations

import re

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colors, cursor, erase
    r"|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[ -/]{0,2}[0-~])"
)


def without_escapes(text: str) -> str:
    return ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text
