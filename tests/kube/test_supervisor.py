"""Supervised parts: a part that fails is started again, and the others do not notice."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.waiting import first_answer

from torchyard.kube.supervisor import PartFailure, Supervisor, run_parts


async def _forever() -> None:
    await asyncio.Event().wait()


async def _answer(value: object) -> object:
    return value


async def test_a_part_that_raises_is_started_again_and_the_other_parts_go_on(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[PartFailure] = []
    supervisor = Supervisor(failures.append, min_delay=0.001, max_delay=0.002)
    starts: list[str] = []

    async def fails_twice() -> None:
        starts.append("fails")
        if starts.count("fails") <= 2:
            raise KeyError("missing")
        await _forever()

    async def steady() -> None:
        starts.append("steady")
        await _forever()

    async def both() -> None:
        await run_parts(fails=fails_twice, steady=steady)

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(supervisor.run("queue", both))
        await first_answer(lambda: _answer(starts.count("fails") == 3))
    assert starts.count("steady") == 1
    assert [(failure.part, failure.failures) for failure in failures] == [("queue/fails", 1), ("queue/fails", 2)]
    assert supervisor.failures == {"queue/fails": 2}
    assert supervisor.down() == {}
    statuses = {status.part: status for status in supervisor.statuses()}
    assert [(part, status.state, status.failures) for part, status in statuses.items()] == [
        ("queue", "Running", 0),
        ("queue/fails", "Running", 2),
        ("queue/steady", "Running", 0),
    ]
    assert statuses["queue/fails"].last_error == "KeyError: 'missing'"
    assert statuses["queue/fails"].since >= statuses["queue/steady"].since
    record = caplog.records[0]
    assert "part=queue/fails" in record.getMessage()
    assert record.exc_info is not None and isinstance(record.exc_info[1], KeyError), "the traceback is logged"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert supervisor.statuses() == []


async def test_a_part_that_returns_or_waits_for_something_cancelled_has_failed_too() -> None:
    supervisor = Supervisor(min_delay=0.001)
    runs: list[str] = []

    async def returns() -> None:
        runs.append("returns")

    async def cancelled_wait() -> None:
        runs.append("cancelled")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    tasks = [asyncio.create_task(supervisor.run(part.__name__, part)) for part in (returns, cancelled_wait)]
    await first_answer(lambda: _answer(runs.count("returns") >= 3 and runs.count("cancelled") >= 3))
    for task in tasks:
        task.cancel()
    assert [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2


async def test_a_part_that_waits_for_its_restart_is_down_with_its_error() -> None:
    supervisor = Supervisor(min_delay=60)

    async def group_fails() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raise())

    task = asyncio.create_task(supervisor.run("part", group_fails))
    down = await first_answer(lambda: _answer(supervisor.down()))
    assert down == {"part": "ValueError: bad value"}
    task.cancel()
    await asyncio.wait([task])
    assert supervisor.down() == {}


async def _raise() -> None:
    raise ValueError("bad value")


async def test_a_part_that_fails_while_it_is_stopped_is_not_started_again() -> None:
    supervisor = Supervisor(min_delay=0.001)
    starts: list[None] = []

    async def fails_at_the_end() -> None:
        starts.append(None)
        try:
            await _forever()
        finally:
            raise ValueError("bad value")

    task = asyncio.create_task(supervisor.run("part", fails_at_the_end))
    await first_answer(lambda: _answer(starts))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(starts) == 1
