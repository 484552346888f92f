"""The work queue: each key once, never two workers on one, pauses that grow."""

from __future__ import annotations

import asyncio

from torchyard.kube.workqueue import WorkQueue


async def test_a_key_added_twice_while_it_waits_comes_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_worked_on_comes_again_only_after_that() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert await queue.get() == "a"


async def test_a_waiting_worker_gets_the_next_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("late")
    assert await worker == "late"


async def test_failures_come_again_with_doubling_pauses_until_one_succeeds() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=0.001, longest_delay=0.004)
    assert [queue.add_rate_limited("a") for _ in range(4)] == [0.001, 0.002, 0.004, 0.004]
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.001
    assert await queue.get() == "a"
    queue.close()


async def test_of_two_appointments_the_earlier_one_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.001)
    assert await queue.get() == "a"
    queue.done("a")
    queue.add_after("b", 0)
    assert await queue.get() == "b"
    queue.close()


async def test_some_go_ahead_of_the_others_but_every_sixteenth_turn_is_the_others() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(3):
        queue.add(f"other-{number}")
    for number in range(18):
        queue.add(f"ahead-{number}", priority=True)
    taken = [await queue.get() for _ in range(21)]
    assert taken[:17] == [*(f"ahead-{number}" for number in range(15)), "other-0", "ahead-15"]
    assert taken[17:] == ["ahead-16", "ahead-17", "other-1", "other-2"]


async def test_a_key_that_waits_keeps_its_place_when_it_is_to_go_ahead() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a", priority=True)
    queue.add("b", priority=True)
    assert [await queue.get(), await queue.get()] == ["b", "a"] and len(queue) == 0
