"""Parser of completion index sets such as `1,3-5,7`."""

from __future__ import annotations

from torchyard.api.errors import YardError

# The number of completions is an int32.
_MAX_DIGITS = 10


class IndexesError(YardError):
    """The text is not a valid set of indexes."""

    code = "BadIndexes"


def parse_interval(text: str, completions: int) -> tuple[int, int]:
    """Return the first and last index of `3` or `3-5`."""
    limits = text.split("-")
    if len(limits) > 2:
        raise IndexesError(
            f'the fragment "{text}" violates the requirement that an index interval can have at most two parts '
            "separated by '-'"
        )
    first = _index(limits[0], completions)
    if len(limits) == 1:
        return first, first
    last = _index(limits[1], completions)
    if first >= last:
        raise IndexesError(f"non-increasing order, previous: {first}, current: {last}")
    return first, last


def _index(text: str, completions: int) -> int:
    if not text.removeprefix("+").isascii() or not text.removeprefix("+").isdigit():
        raise IndexesError(f'cannot convert string to integer for index: "{text}"')
    # int() rejects thousands of digits
    if len(text.lstrip("+0")) > _MAX_DIGITS or int(text) >= completions:
        raise IndexesError(f'too large index: "{text}"')
    return int(text)


def count_indexes(text: str, completions: int) -> int:
    """Count the indexes of a text; they must be sorted and below `completions`."""
    total = 0
    previous: int | None = None
    for part in text.split(",") if text else ():
        first, last = parse_interval(part, completions)
        if previous is not None and previous >= first:
            raise IndexesError(f"non-increasing order, previous: {previous}, current: {first}")
        total += last - first + 1
        previous = last
    return total


def _intervals(text: str, completions: int) -> list[tuple[int, int]]:
    intervals = []
    for part in text.split(",") if text else ():
        try:
            intervals.append(parse_interval(part, completions))
        except IndexesError:
            continue  # the format check reports this
    return intervals


def first_overlap(text: str, other: str, completions: int) -> int | None:
    """Return the lowest index that both texts contain, if any."""
    left, right = _intervals(text, completions), _intervals(other, completions)
    at = 0
    for first, last in left:
        while at < len(right) and right[at][1] < first:
            at += 1
        if at < len(right) and right[at][0] <= last:
            return max(first, right[at][0])
    return None
