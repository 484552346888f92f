"""hostPID: the machine's processes are visible, not open to the pod; exec and the end of the container work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support
from tests.security.sandbox_support import output_of


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


async def test_host_pid_shows_processes_of_the_machine_and_opens_none(harness: support.ShimHarness) -> None:
    pid = os.getpid()
    script = (
        f"test -d /proc/{pid} && echo seen; cat /proc/{pid}/environ 2>/dev/null; ls /proc/{pid}/root/ 2>/dev/null; "
        f"ls /proc/{pid}/cwd/ 2>/dev/null; ls /proc/1/root/ 2>/dev/null; "
        "v=$(cat /proc/sys/vm/swappiness); (echo $v > /proc/sys/vm/swappiness) 2>/dev/null && echo wrote; "
        "cat /proc/keys"
    )
    assert await output_of(harness, script, pid="NODE") == "seen"


async def test_without_host_pid_no_process_of_the_machine_is_visible(harness: support.ShimHarness) -> None:
    assert int(await output_of(harness, "ls -d /proc/[0-9]* | wc -l")) < 6


async def test_processes_of_a_host_pid_container_end_with_it(harness: support.ShimHarness) -> None:
    pod = await harness.pod("p")
    text = await output_of(harness, "sleep 4711 >/dev/null 2>&1 & echo $!", pod=pod, pid="NODE")
    for _ in range(6000):
        if not support.alive(int(text)):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the container's background process is still running")
