"""Sets of completion indexes, as users and statuses write them."""

from __future__ import annotations

from random import Random

from tests.support.jobs import at, pod, stored

from torchyard.core.job.backoff import NO_FAILURES
from torchyard.core.job.decide import decide
from torchyard.core.job.indexes import IndexSet, count, first_free, format_indexes, parse
from torchyard.core.job.view import JobView

MANY = 2**31 - 1


def test_counts_equal_those_of_the_listed_indexes() -> None:
    random = Random(1)
    for _ in range(500):
        named = set(random.sample(range(40), random.randrange(1, 20)))
        members = set(random.sample(range(40), random.randrange(20)))
        completions, text = random.randrange(1, 40), format_indexes(IndexSet.of(named))
        listed = set(parse(text, completions))
        assert listed == {index for index in named if index < completions}
        assert count(text, completions, IndexSet.of(members)) == (len(listed), len(listed & members))


def test_an_index_set_has_the_operations_of_a_set() -> None:
    random = Random(2)
    for _ in range(500):
        left, right = (set(random.sample(range(30), random.randrange(25))) for _ in range(2))
        ours, theirs = IndexSet.of(left), IndexSet.of(right)
        for intervals, listed in ((ours | theirs, left | right), (ours - theirs, left - right)):
            assert list(intervals) == sorted(listed)
            assert len(intervals) == len(listed)
            assert bool(intervals) is bool(listed)
            assert {index for index in range(-1, 32) if index in intervals} == listed
            assert [intervals.below(index) for index in range(32)] == [
                sum(member < index for member in listed) for index in range(32)
            ]
            assert set(parse(format_indexes(intervals), 30)) == listed
            free = [index for index in range(28) if index not in listed]
            for wanted in (0, 1, 5, 40):
                assert first_free(intervals, wanted, 28) == free[:wanted]


def test_consecutive_indexes_are_written_as_intervals() -> None:
    assert format_indexes(IndexSet.of([1, 3, 4, 5, 7, 8])) == "1,3-5,7,8"


def test_two_billion_indexes_are_counted_without_listing_them() -> None:
    assert count("0-2147483645", MANY, IndexSet.of([0, 7, MANY - 1])) == (MANY - 1, 2)


def test_a_status_of_two_billion_indexes_is_continued_without_listing_them() -> None:
    """Whoever may write the status of a job decides how many indexes it names."""
    status = {
        "startTime": "2026-01-01T12:00:00Z",
        "completedIndexes": f"0-{MANY - 5}",
        "failedIndexes": f"2-{MANY - 4}",
    }
    job = stored(status=status, completionMode="Indexed", completions=MANY, parallelism=2, backoffLimitPerIndex=1)
    decision = decide(JobView(job, at(0), (pod("Running", index=MANY - 3),), NO_FAILURES))
    assert decision.status is not None
    assert decision.status["completedIndexes"] == f"0-{MANY - 5}"
    assert decision.status["failedIndexes"] == str(MANY - 4)
