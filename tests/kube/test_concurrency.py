"""The adaptive limit on concurrent requests."""

from __future__ import annotations

import asyncio

import pytest

from torchyard.kube.client import ApiResponse
from torchyard.kube.concurrency import ConcurrencyLimiter
from torchyard.kube.http import _retry_after


async def test_concurrent_requests_never_exceed_the_window() -> None:
    limiter, in_flight, peak = ConcurrencyLimiter(maximum=3), 0, 0

    async def request() -> None:
        nonlocal in_flight, peak
        async with limiter:
            in_flight += 1
            peak = max(peak, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1

    await asyncio.gather(*(request() for _ in range(20)))
    assert peak == 3


async def test_back_off_halves_the_window_once_and_pauses_all_requests() -> None:
    limiter = ConcurrencyLimiter(maximum=8)
    limiter.back_off(0.05)
    limiter.back_off(0.05)  # other requests in flight get the same response
    assert limiter.window == 4.0
    started = asyncio.Event()

    async def request() -> None:
        async with limiter:
            started.set()

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not started.is_set()
    await task
    assert started.is_set()


async def test_responses_widen_the_window_up_to_its_maximum() -> None:
    limiter = ConcurrencyLimiter(maximum=4)
    limiter.window = 1.0
    for _ in range(50):
        async with limiter:
            pass
    assert limiter.window == 4.0


async def test_a_cancelled_waiter_does_not_use_up_a_slot() -> None:
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("3", 3.0),
        ("0.5", 0.5),
        ("31", 30.0),
        ("9" * 5000, 1.0),  # more than a float holds
        ("1e999", 1.0),
        ("nan", 1.0),
        ("inf", 1.0),
        ("-inf", 1.0),
        ("-1", 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("", 1.0),
    ],
)
async def test_an_overloaded_server_is_left_alone_for_at_most_half_a_minute(text: str, seconds: float) -> None:
    wait = _retry_after(ApiResponse(503, b"", {"retry-after": text}))
    assert wait == seconds
    limiter = ConcurrencyLimiter()
    limiter.back_off(wait)  # the event loop takes it
    assert limiter._pause is not None
    limiter._pause.cancel()


def test_only_overloaded_servers_are_waited_for() -> None:
    assert _retry_after(ApiResponse(500, b"", {"retry-after": "1"})) is None
    assert _retry_after(ApiResponse(429, b"", {})) is None
