"""Sources that are read in sequence: every range gives its records, and a changed source is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.streams import SourceRange, Streams

SOURCES = {"a": list("aaaa"), "b": [], "c": list("cc"), "d": list("ddddd")}
opened: list[tuple[str, int]] = []


def open_at(source: str, offset: int) -> Iterator[str]:
    opened.append((source, offset))
    return (f"{letter}{number}" for number, letter in list(enumerate(SOURCES[source]))[offset:])


def streams() -> Streams:
    return Streams(list(SOURCES), open_at, lengths=[4, 0, 2, 5])


def test_lengths_are_counted_unless_they_are_given() -> None:
    assert len(Streams(list(SOURCES), open_at)) == len(streams()) == 11


def test_a_range_over_several_sources_is_split_by_source() -> None:
    assert streams().ranges(3, 8) == [SourceRange("a", 3, 4), SourceRange("c", 0, 2), SourceRange("d", 0, 2)]
    assert streams().read(3, 8) == ["a3", "c0", "c1", "d0", "d1"]


@given(st.lists(st.integers(0, 10), min_size=1, max_size=6))
def test_any_order_of_ranges_gives_the_same_records(starts: list[int]) -> None:
    whole, reader = streams().read(0, 11), streams()
    for start in starts:
        assert reader.read(start, min(start + 3, 11)) == whole[start : start + 3]


def test_consecutive_ranges_do_not_open_a_source_again() -> None:
    reader = streams()
    opened.clear()
    for lo in range(6, 11):
        reader.read(lo, lo + 1)
    assert opened == [("d", 0)]


def test_a_source_that_became_shorter_is_reported() -> None:
    with pytest.raises(ElasticError, match="d has only 5 records, but had 9") as caught:
        Streams(["d"], open_at, lengths=[9]).read(4, 8)
    assert caught.value.code == "SourceChanged"


def test_lengths_that_do_not_fit_the_sources_are_refused() -> None:
    with pytest.raises(ElasticError, match="there are 1 lengths for 2 sources"):
        Streams(["a", "b"], open_at, lengths=[4])
