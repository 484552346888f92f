"""Keys from the bytes of a terminal: `j`, `enter`, `up`, `ctrl-d`."""

from __future__ import annotations

import codecs
import re

ESCAPE_SECONDS = 0.05
"""A terminal sends the bytes of a key together; an ESC that nothing follows for this long is the key itself."""

_NAMES = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
}
_SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "7~": "home",
    "4~": "end",
    "8~": "end",
    "5~": "pageup",
    "6~": "pagedown",
}
# A complete control sequence, such as ESC [ 5 ~ or ESC O A; parameters such as ;5 (Ctrl) are ignored.
_SEQUENCE = re.compile(r"\x1b(?:\[([0-9]*)(?:;[0-9;]*)?([A-Za-z~])|O([A-Za-z])|\[[0-?]*[ -/]*[@-~])")
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}|O)?")


class KeyDecoder:
    """`feed` returns the keys that are complete; `flush` those that an incomplete sequence turns out to be."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        keys: list[str] = []
        position = 0
        while position < len(text):
            if text[position] != "\x1b":
                keys += _plain_key(text[position])
                position += 1
            elif match := _SEQUENCE.match(text, position):
                keys += _sequence_key(match)
                position = match.end()
            elif _INCOMPLETE.fullmatch(text, position):
                self._rest = text[position:]
                break
            else:
                keys.append("esc")
                position += 1
        return keys

    def flush(self) -> list[str]:
        rest, self._rest = self._rest, ""
        return ["esc", *(key for character in rest[1:] for key in _plain_key(character))] if rest else []


def _plain_key(character: str) -> list[str]:
    if character in _NAMES:
        return [_NAMES[character]]
    if "\x01" <= character <= "\x1a":
        return [f"ctrl-{chr(ord(character) + 96)}"]
    return [character] if character.isprintable() else []


def _sequence_key(match: re.Match[str]) -> list[str]:
    number, final, application = match.groups()
    code = application or (f"{number}~" if final == "~" else final)
    name = _SEQUENCES.get(code or "")
    return [name] if name else []
