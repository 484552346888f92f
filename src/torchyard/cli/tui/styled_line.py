"""A line of the screen: parts with a style, cut to a width. No control character of a text reaches the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from torchyard.api.escapes import without_escapes
from torchyard.cli.printable import mask_unprintable

Span = tuple[str, str]  # text, style
Line = list[Span]

_STYLES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
SERIES_STYLES = ("cyan", "green", "magenta", "yellow", "blue", "red")
_WITHOUT_COLOUR = frozenset(("", "bold", "dim", "reverse"))
_MAX_TEXT = 4096


def printable(text: str) -> str:
    """The text without escape sequences; other characters that are not printable become question marks."""
    text = text[:_MAX_TEXT]
    return text if text.isprintable() else mask_unprintable(without_escapes(text).expandtabs(4))


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def pad(text: str, width: int) -> str:
    """The text in exactly so many cells: wide characters take two."""
    return set_cell_size(printable(text), width)


def columns(rows: Iterable[Iterable[str]], *, widest: int) -> list[int]:
    """The width of each column of a table, none wider than `widest`."""
    widths: list[int] = []
    for row in rows:
        for number, cell in enumerate(row):
            if number == len(widths):
                widths.append(0)
            widths[number] = min(max(widths[number], cell_len(printable(cell))), widest)
    return widths


def encode(line: Line, width: int, *, colours: bool) -> str:
    """The line with escape sequences, of at most `width` cells. A style of several words joins them."""
    out: list[str] = []
    left = width
    for raw, style in line:
        text = printable(raw)
        length = cell_len(text)
        if length > left:
            text, length = set_cell_size(text, left), left
        if text:
            out.append(_styled(text, style, colours=colours))
        left -= length
        if left <= 0:
            break
    return "".join(out)


def _styled(text: str, style: str, *, colours: bool) -> str:
    words = [word for word in style.split() if colours or word in _WITHOUT_COLOUR]
    codes = ";".join(_STYLES[word] for word in words if _STYLES[word])
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
