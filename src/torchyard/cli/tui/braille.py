"""Curves as braille characters: each cell has two by four dots."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from torchyard.cli.tui.styled_line import SERIES_STYLES, Line, Span

Point = tuple[float, float]
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a cell
_BLANK = 0x2800
LABEL_WIDTH = 9


def plot(curves: Sequence[Sequence[Point]], width: int, height: int) -> list[Line]:
    """Curves over each other in `width` by `height` cells, with the range of values at the left.

    Values that are not finite are gaps. A later curve has the colour of a cell that it shares with others.
    """
    points = [[(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)] for curve in curves]
    drawn = [point for curve in points for point in curve]
    columns, rows = max(1, width - LABEL_WIDTH - 1), max(1, height)
    if not drawn:
        return [[(" " * LABEL_WIDTH + "│", "dim"), ("no values yet" if not row else "", "dim")] for row in range(rows)]
    bounds = _bounds(drawn)
    cells = [[0] * columns for _ in range(rows)]
    styles = [[""] * columns for _ in range(rows)]
    for number, curve in enumerate(points):
        style = SERIES_STYLES[number % len(SERIES_STYLES)]
        for x, y in _dots([_scaled(point, bounds, columns * 2, rows * 4) for point in curve]):
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
            styles[y // 4][x // 2] = style
    labels = _labels(bounds[1], bounds[3], rows)
    return [
        [(f"{label:>{LABEL_WIDTH}}│", "dim"), *_spans(row, row_styles)]
        for label, row, row_styles in zip(labels, cells, styles, strict=True)
    ]


def number_text(value: float) -> str:
    """A number in at most nine characters."""
    if not math.isfinite(value):
        return str(value)
    text = f"{value:.4g}"
    return text if len(text) <= LABEL_WIDTH else f"{value:.2g}"


def _bounds(points: list[Point]) -> tuple[float, float, float, float]:
    """The smallest and largest values of both axes; a range of nothing is widened."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, low, right, high = min(xs), min(ys), max(xs), max(ys)
    if high <= low:
        margin = abs(high) * 0.05 or 1.0
        largest = sys.float_info.max
        low, high = max(low - margin, -largest), min(high + margin, largest)
    return left, low, max(right, left), high


def _scaled(point: Point, bounds: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int]:
    left, low, right, high = bounds
    # Halves first: the difference of two large values overflows.
    x = (point[0] / 2 - left / 2) / (right / 2 - left / 2) if right > left else 1.0
    y = (point[1] / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
    return round(x * (width - 1)), round((1 - y) * (height - 1))


def _dots(points: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The dots of the lines between points."""
    if len(points) == 1:
        yield points[0]
    for (x0, y0), (x1, y1) in pairwise(points):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            yield round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)


def _labels(low: float, high: float, rows: int) -> list[str]:
    labels = [""] * rows
    labels[-1] = number_text(low)
    if rows > 4:
        labels[rows // 2] = number_text(high / 2 + low / 2)
    labels[0] = number_text(high)
    return labels


def _spans(row: list[int], styles: list[str]) -> list[Span]:
    spans: list[Span] = []
    for dots, style in zip(row, styles, strict=True):
        character = chr(_BLANK + dots) if dots else " "
        if spans and spans[-1][1] == style:
            spans[-1] = spans[-1][0] + character, style
        else:
            spans.append((character, style))
    return spans
