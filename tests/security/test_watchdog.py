"""The watchdog: a callback that blocks the event loop is recorded with its stack, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.apiserver.metrics.event_loop import EventLoopMetrics
from torchyard.yard.thread_stack import StackFrame, StackReader, parse_stack
from torchyard.yard.watchdog import LoopWatchdog

THRESHOLD = 0.2


def runner(kind: str) -> asyncio.Runner:
    if kind == "asyncio":
        return asyncio.Runner()
    uvloop = pytest.importorskip("uvloop")
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def watched(kind: str, work: Callable[[], Coroutine[Any, Any, None]]) -> EventLoopMetrics:
    """Run `work` under a watchdog, and return what it counted."""
    metrics = EventLoopMetrics()

    async def run() -> None:
        watchdog = LoopWatchdog(metrics, THRESHOLD)
        watchdog.start()
        try:
            await work()
            await asyncio.sleep(THRESHOLD)  # the thread takes its next sample
        finally:
            watchdog.stop()

    with runner(kind) as loop_runner:
        loop_runner.run(run())
    return metrics


@pytest.fixture(params=["asyncio", "uvloop"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sleep_in_the_loop() -> None:
    time.sleep(3 * THRESHOLD)


async def blocking_task() -> None:
    sleep_in_the_loop()


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_task_that_blocks_is_recorded_with_its_stack(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        await asyncio.create_task(blocking_task())

    metrics = watched(kind, work)
    assert metrics.blocked["test_watchdog.blocking_task"].total >= THRESHOLD
    (record,) = [record for record in caplog.records if "callback=test_watchdog.blocking_task" in record.getMessage()]
    assert record.msg.startswith("event loop was blocked: seconds=%.3f cpu=%.3f callback=%s")
    assert re.search(
        r"test_watchdog.py:\d+ sleep_in_the_loop < test_watchdog.py:\d+ blocking_task", record.getMessage()
    )


def test_a_plain_callback_that_blocks_is_recorded(kind: str) -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_soon(sleep_in_the_loop)
        await asyncio.sleep(0.01)

    assert "test_watchdog.sleep_in_the_loop" in watched(kind, work).blocked


def test_c_code_that_holds_the_gil_is_recorded(kind: str) -> None:
    shares = list[float]()

    async def hold_the_gil() -> None:
        start, used = time.monotonic(), time.process_time()
        while time.monotonic() - start < 2 * THRESHOLD:
            sum(range(2_000_000))  # several calls: the watchdog's thread can only look between two of them
        shares.append((time.process_time() - used) / (time.monotonic() - start))

    async def work() -> None:
        await asyncio.create_task(hold_the_gil())

    for _ in range(5):
        metrics = watched(kind, work)
        if shares[-1] > 0.5:
            break
    else:
        pytest.skip(f"other processes take the CPU, and a process that gets none is not recorded: {shares}")
    assert any("hold_the_gil" in name for name in metrics.blocked), shares


def test_a_busy_loop_of_short_callbacks_is_not_recorded(kind: str) -> None:
    async def work() -> None:
        for _ in range(200):
            burn(THRESHOLD / 100)
            await asyncio.sleep(0)

    metrics = watched(kind, work)
    # On a machine that is busy with other work a single step may take long; several may not.
    assert sum(sum(histogram.counts) for histogram in metrics.blocked.values()) <= 1


def test_a_loop_that_waits_is_not_recorded(kind: str) -> None:
    async def work() -> None:
        await asyncio.sleep(5 * THRESHOLD)

    metrics = watched(kind, work)
    assert not metrics.blocked
    assert sum(metrics.lag.counts) > 0


def test_the_log_of_a_callback_is_limited(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    watchdog = LoopWatchdog(EventLoopMetrics(), THRESHOLD)
    now = time.monotonic()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            watchdog.record("Slow.callback", "stack", 1.0, 1.0)
        monkeypatch.setattr("torchyard.yard.watchdog.time.monotonic", lambda: now + 100)
        watchdog.record("Slow.callback", "stack", 1.0, 1.0)
        monkeypatch.undo()
    first, second = [record.getMessage() for record in caplog.records]
    assert "suppressed=0" in first
    assert "suppressed=49" in second
    assert sum(watchdog.metrics.blocked["Slow.callback"].counts) == 51


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    ours = Yard(tmp_path, controllers="-*")
    with ours:
        yield ours


def test_the_plane_serves_the_metrics_and_reports_that_it_was_stopped(yard: Yard) -> None:
    server, process = yard.server(), yard.process
    assert process is not None
    text = server.admin.get("/metrics").text
    assert "# TYPE torchyard_event_loop_blocked_seconds histogram" in text
    assert "# TYPE torchyard_event_loop_lag_seconds histogram" in text
    os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(2)  # the pause itself is what is tested
    finally:
        os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: "process was stopped: seconds=" in yard.log.read_text(), "the log line")
    assert server.admin.get("/readyz").status == 200
    match = re.search(r"torchyard_process_stopped_seconds_total ([\d.]+)", server.admin.get("/metrics").text)
    assert match is not None
    assert float(match[1]) >= 1.0


def test_stacks_of_threads_that_go_on_can_be_read(kind: str) -> None:
    """CPython 3.11 may crash if a thread follows the frames of another one, whose coroutines end and are cancelled."""
    reader, main, ended = StackReader(), threading.get_ident(), threading.Event()
    stacks = list[list[StackFrame]]()

    def read() -> None:
        while not ended.is_set():
            stacks.append(reader.read(main))

    async def nested(depth: int) -> None:
        await (nested(depth - 1) if depth else asyncio.sleep(0.001))

    async def work() -> None:
        for _ in range(100):
            tasks = [asyncio.ensure_future(nested(depth)) for depth in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        with runner(kind) as loop_runner:
            loop_runner.run(work())
    finally:
        ended.set()
        thread.join()
        reader.close()
    names = {frame.function for stack in stacks for frame in stack}
    assert "test_stacks_of_threads_that_go_on_can_be_read" in names


def test_a_stack_has_the_frames_of_one_thread() -> None:
    text = (
        'Thread 0x00007f0000000001 [worker] (most recent call first):\n  File "/a/b.py", line 3 in wait\n\n'
        'Current thread 0x00007f0000000002 (most recent call first):\n  File "<string>", line 1 in <module>\n'
        '  File "/x/torchyard/apiserver/store/store.py", line 7 in _flush\n  ...\n'
    )
    assert [frame.location for frame in parse_stack(text, 0x7F0000000001)] == ["b.py:3 wait"]
    assert [frame.location for frame in parse_stack(text, 0x7F0000000002)] == [
        "<string>:1 <module>",
        "apiserver/store/store.py:7 _flush",
    ]
    assert not parse_stack(text, 0x7F0000000003)
