"""The rows of a list that the screen shows, below their headings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.cli.tui.styled_line import Line, columns, pad

_GAP = "  "


@dataclass(frozen=True, slots=True)
class ListRow:
    cells: Sequence[str]
    style: str = ""


def list_table(header: Sequence[str], rows: Sequence[ListRow], width: int, *, chosen: int) -> list[Line]:
    """The headings and the rows. The row with the number `chosen` is marked over the whole width."""
    widths = columns([header, *(row.cells for row in rows)], widest=max(12, width // 3))
    lines: list[Line] = [[(_GAP.join(map(pad, header, widths)), "dim")]]
    for number, row in enumerate(rows):
        text = _GAP.join(map(pad, row.cells, widths))
        lines.append([(pad(text, width), f"{row.style} reverse") if number == chosen else (text, row.style)])
    return lines
