"""How many requests are under way at once: never more than the window, fewer after a complaint, more again later."""

from __future__ import annotations

import asyncio

from torchyard.kube.concurrency import ConcurrencyLimiter


async def test_no_more_than_the_window_are_under_way() -> None:
    limiter, under_way, most = ConcurrencyLimiter(maximum=3), 0, 0

    async def request() -> None:
        nonlocal under_way, most
        async with limiter:
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(request() for _ in range(20)))
    assert most == 3


async def test_a_complaint_halves_the_window_once_and_pauses_everybody() -> None:
    limiter = ConcurrencyLimiter(maximum=8)
    limiter.back_off(0.05)
    limiter.back_off(0.05)  # the others that were under way complain of the same
    assert limiter.window == 4.0
    begun = asyncio.Event()

    async def request() -> None:
        async with limiter:
            begun.set()

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not begun.is_set()
    await task
    assert begun.is_set()


async def test_answers_widen_the_window_up_to_its_most() -> None:
    limiter = ConcurrencyLimiter(maximum=4)
    limiter.window = 1.0
    for _ in range(50):
        async with limiter:
            pass
    assert limiter.window == 4.0


async def test_who_gives_up_waiting_takes_nobodys_turn() -> None:
    limiter = ConcurrencyLimiter(maximum=1)
    async with limiter:
        waiting = [asyncio.create_task(_use(limiter)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    await waiting[1]
    assert waiting[0].cancelled()
    async with asyncio.timeout(5), limiter:
        pass


async def _use(limiter: ConcurrencyLimiter) -> None:
    async with limiter:
        pass
