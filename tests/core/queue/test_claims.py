"""A workload that others give quota back for: nobody of its queue passes it meanwhile, as in Kueue."""

from __future__ import annotations

from typing import Any

from tests.support.queues import World, flavor, local, queue, workload

from torchyard.core.queue.cycle import Admit, Decision, Preempt

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
