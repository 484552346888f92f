"""A workload that others give quota back for: nobody of its queue passes it meanwhile, as in Kueue."""

from __future__ import annotations

from typing import Any

from tests.support.queues import World, flavor, local, queue, workload

from torchyard.api.queue import messages
from torchyard.core.queue.scheduler import Admit, Decision, Preempt, Wait

LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def admitted(decisions: list[Decision]) -> list[str]:
    return [one.item.key[1] for one in decisions if isinstance(one, Admit)]


def preempted(decisions: list[Decision]) -> list[str]:
    return [target.item.key[1] for one in decisions if isinstance(one, Preempt) for target in one.targets]


def rounds(world: World) -> list[Decision]:
    """Until there is nothing more to look at; nobody gives anything back."""
    found = world.round()
    while world.book.awake:
        found += world.round()
    return found


def with_a_large_one() -> World:
    """Two that hold a queue's four cpus, a third that waits, and one that needs all of it."""
    world = World(flavor(), queue(cpu=4, preemption=LOWER), local())
    world.put(workload("a", cpu=2, at=1), workload("b", cpu=2, at=2))
    assert admitted(rounds(world)) == ["a", "b"]
    world.put(workload("next", cpu=2, at=3), workload("large", cpu=4, priority=9, at=4))
    assert sorted(preempted(rounds(world))) == ["a", "b"]
    return world


def test_what_is_given_back_piece_by_piece_is_kept_for_whom_it_is_given_back() -> None:
    world = with_a_large_one()
    world.give_back("b")
    assert rounds(world) == []
    world.give_back("a")
    assert admitted(rounds(world)) == ["large"]


def test_it_is_told_what_it_waits_for() -> None:
    world = World(flavor(), queue(cpu=4, preemption=LOWER), local(), workload("a", cpu=3))
    rounds(world)
    world.put(workload("large", cpu=4, priority=9))
    told = [(one.reason, one.message) for one in rounds(world) if isinstance(one, Wait)]
    why = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 3 more needed"
    assert told == [(messages.WAITING_FOR_PREEMPTED, f"{why}. Pending the preemption of 1 workload(s)")]


def test_who_comes_meanwhile_does_not_pass_either() -> None:
    world = with_a_large_one()
    world.put(workload("small", cpu=1, at=5))
    world.give_back("b")
    assert rounds(world) == []


def test_when_it_goes_away_others_get_what_was_kept_for_it() -> None:
    world = with_a_large_one()
    world.give_back("b")
    rounds(world)
    world.finish("large")
    assert admitted(rounds(world)) == ["b"]


def test_who_is_more_important_goes_first_even_then() -> None:
    world = with_a_large_one()
    world.give_back("b")
    world.put(workload("urgent", cpu=2, priority=10, at=6))
    assert admitted(rounds(world)) == ["urgent"]


def test_who_was_not_evicted_after_all_is_preempted_again() -> None:
    world = with_a_large_one()
    world.give_back("b")
    world.book.put(world.objects["a"], again=True)
    assert preempted(rounds(world)) == ["a"]


def test_others_of_the_cohort_do_not_borrow_what_is_kept() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    world = World(flavor(), queue("mine", cpu=4, **shared), queue("theirs", cpu=1, **shared))
    world.put(local("mine", "mine"), local("theirs", "theirs"))
    world.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=2, queue="mine"))
    world.put(workload("c", cpu=1, queue="theirs"))
    rounds(world)
    world.put(workload("large", cpu=4, priority=9, queue="mine"), workload("borrower", cpu=1, queue="theirs"))
    assert sorted(preempted(rounds(world))) == ["a", "b"]
    world.give_back("b")
    assert admitted(rounds(world)) == []
    world.give_back("a")
    assert admitted(rounds(world)) == ["large"]


def test_what_is_left_beside_it_others_of_the_cohort_get() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    world = World(flavor(), queue("mine", cpu=4, borrowingLimit=0, **shared), queue("theirs", cpu=2, **shared))
    world.put(local("mine", "mine"), local("theirs", "theirs"))
    world.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=2, queue="mine"))
    rounds(world)
    world.put(workload("large", cpu=4, priority=9, queue="mine"))
    assert sorted(preempted(rounds(world))) == ["a", "b"]
    world.put(workload("c", cpu=2, queue="theirs"))
    assert admitted(rounds(world)) == ["c"]


def test_what_will_be_left_is_given_to_nobody_before_it_is_there() -> None:
    shared: Any = {"cohort": "all", "preemption": LOWER}
    world = World(flavor(), *(queue(name, cpu=cpu, **shared) for name, cpu in (("mine", 4), ("b", 1), ("c", 0))))
    world.put(*(local(name, name) for name in ("mine", "b", "c")), workload("a", cpu=4, queue="mine"))
    rounds(world)
    world.put(workload("first", cpu=2, priority=9, queue="mine"))
    world.put(workload("own", cpu=1, queue="b"), workload("borrower", cpu=1, queue="c"))
    found = rounds(world)
    assert (preempted(found), admitted(found)) == (["a"], ["own"])
    world.give_back("a")
    assert sorted(admitted(rounds(world))) == ["borrower", "first"]


def two_that_want_the_same() -> tuple[World, list[Decision]]:
    """A borrower of four cpus, and the owners of two each: only one of them can have it evicted."""
    shared: Any = {"cohort": "all", "preemption": LOWER}
    world = World(flavor(), *(queue(name, cpu=cpu, **shared) for name, cpu in (("a", 2), ("b", 2), ("c", 1))))
    world.put(*(local(name, name) for name in "abc"), workload("borrower", cpu=4, queue="c"))
    rounds(world)
    world.put(workload("first", cpu=2, queue="a", at=1), workload("second", cpu=2, queue="b", at=2))
    world.put(workload("small", cpu=1, queue="b", at=3))
    return world, rounds(world)


def test_a_second_preemptor_of_the_same_targets_is_not_passed_by_others_of_its_queue() -> None:
    world, found = two_that_want_the_same()
    assert preempted(found) == ["borrower"]
    assert admitted(found) == [], "there is a cpu that the small one could have"
    told = [(one.item.key[1], one.reason, one.message) for one in found if isinstance(one, Wait)]
    assert told[-1] == ("second", messages.WAITING, "Workload has overlapping preemption targets with another workload")
    world.give_back("borrower")
    assert admitted(rounds(world)) == ["first", "second", "small"]


def test_a_second_preemptor_waits_without_being_looked_at_all_the_time() -> None:
    world, _ = two_that_want_the_same()
    assert not world.book.awake
    assert rounds(world) == []


def test_when_the_first_preemptor_goes_away_the_second_takes_its_turn() -> None:
    world, _ = two_that_want_the_same()
    world.finish("first")
    found = rounds(world)
    assert [(one.item.key[1], one.reason) for one in found if isinstance(one, Wait)] == [
        ("second", messages.WAITING_FOR_PREEMPTED)
    ]
    world.give_back("borrower")
    assert admitted(rounds(world)) == ["second", "small"]


def test_who_would_fit_but_for_what_is_kept_is_not_passed_either() -> None:
    world = World(flavor(), queue("mine", cpu=4, cohort="all", preemption=LOWER), queue("theirs", cpu=2, cohort="all"))
    world.put(local("mine", "mine"), local("theirs", "theirs"))
    world.put(workload("a", cpu=2, queue="mine"), workload("b", cpu=1, queue="mine"))
    rounds(world)
    world.put(workload("large", cpu=4, priority=9, queue="mine"))
    assert preempted(rounds(world)) == ["a"]
    world.put(workload("medium", cpu=2, queue="theirs", at=1), workload("small", cpu=1, queue="theirs", at=2))
    assert admitted(rounds(world)) == [], "there will be a cpu left that the small one could have"
    world.give_back("a")
    assert admitted(rounds(world)) == ["large", "small"]
