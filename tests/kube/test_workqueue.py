"""The work queue: each key once, never two workers on one key, growing retry delays."""

from __future__ import annotations

import asyncio

from torchyard.kube.workqueue import WorkQueue


async def test_a_key_added_twice_while_it_waits_is_queued_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_processed_is_queued_after_done() -> None:
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


async def test_retry_delays_double_until_forget() -> None:
    queue: WorkQueue[str] = WorkQueue(min_delay=0.001, max_delay=0.004)
    assert [queue.add_rate_limited("a") for _ in range(4)] == [0.001, 0.002, 0.004, 0.004]
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.001
    assert await queue.get() == "a"
    queue.close()


async def test_of_two_delays_of_a_key_the_earlier_one_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.001)
    assert await queue.get() == "a"
    queue.done("a")
    queue.add_after("b", 0)
    assert await queue.get() == "b"
    queue.close()


async def test_priority_keys_go_first_but_every_sixteenth_key_is_a_normal_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(3):
        queue.add(f"normal-{number}")
    for number in range(18):
        queue.add(f"priority-{number}", priority=True)
    taken = [await queue.get() for _ in range(21)]
    assert taken[:17] == [*(f"priority-{number}" for number in range(15)), "normal-0", "priority-15"]
    assert taken[17:] == ["priority-16", "priority-17", "normal-1", "normal-2"]


async def test_a_waiting_key_keeps_its_position_when_added_with_priority() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a", priority=True)
    queue.add("b", priority=True)
    assert [await queue.get(), await queue.get()] == ["b", "a"] and len(queue) == 0
