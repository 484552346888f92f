"""Completion indexes: parsed from the text in a status, and formatted again."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.job.indexes import IndexesError, parse_interval

_ANY = 2**31


def parse(text: str | None, completions: int) -> set[int]:
    """The indexes below `completions` in a text such as `1,3-5,7`. Invalid intervals are ignored."""
    indexes: set[int] = set()
    for part in (text or "").split(",") if text else ():
        try:
            first, last = parse_interval(part, _ANY)
        except IndexesError:
            continue
        indexes.update(range(first, min(last + 1, completions)))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """Ascending; three or more consecutive indexes become an interval: `1,3-5,7,8`."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = runs[-1][0], index
        else:
            runs.append((index, index))
    return ",".join(_format_interval(first, last) for first, last in runs)


def _format_interval(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def first_free(taken: set[int], count: int, completions: int) -> list[int]:
    """The lowest unused indexes."""
    free: list[int] = []
    candidate = 0
    while candidate < completions and len(free) < count:
        if candidate not in taken:
            free.append(candidate)
        candidate += 1
    return free
