"""Parsers of completion indexes and schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.api.job.indexes import IndexesError, count_indexes, first_overlap
from torchyard.api.job.schedule import schedule_problem


@pytest.mark.parametrize(("text", "count"), [("", 0), ("0", 1), ("0,2-4,9", 5), ("0-9", 10)])
def test_indexes_are_counted(text: str, count: int) -> None:
    assert count_indexes(text, 10) == count


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a", 'cannot convert string to integer for index: "a"'),
        ("1-", 'cannot convert string to integer for index: ""'),
        ("10", 'too large index: "10"'),
        ("3,1", "non-increasing order, previous: 3, current: 1"),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("1-2-3", "can have at most two parts"),
    ],
)
def test_indexes_out_of_order_or_range_are_errors(text: str, complaint: str) -> None:
    with pytest.raises(IndexesError, match=complaint):
        count_indexes(text, 10)


def _format(indexes: set[int]) -> str:
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_the_first_overlap_is_the_lowest_common_index(left: set[int], right: set[int]) -> None:
    assert first_overlap(_format(left), _format(right), 31) == min(left & right, default=None)
    assert count_indexes(_format(left), 31) == len(left)


@pytest.mark.parametrize(
    "text", ["* * * * *", "*/5 0-4,6 1 JAN mon-fri", "@hourly", "@every 1h30m", "0 0 ? * *", "1,,2 * * * *"]
)
def test_valid_schedules_have_no_problem(text: str) -> None:
    assert schedule_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("@foo", "unrecognized descriptor: @foo"),
    ],
)
def test_an_invalid_schedule_has_a_problem(text: str, problem: str) -> None:
    assert schedule_problem(text) == problem
