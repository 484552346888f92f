"""A process on its way into a container has more rights than the container: nothing there may take hold of it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support
from tests.security.sandbox_support import python_output

SYS_PTRACE = 19
WATCH = """
import os, sys
names, opened = set(), 0
print("watching", flush=True)
while True:
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1": continue
        try:
            with open(f"/proc/{name}/comm") as file: comm = file.read().strip()
            if comm not in ("yard-shim", "yard-spare", "yard-zygote"): continue
            names.add(name)
            os.close(os.open(f"/proc/{name}/mem", os.O_RDWR))
            with open(f"/proc/{name}/comm") as file:
                if file.read().strip() == comm: print("opened", name, comm, flush=True)
        except OSError: pass
"""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


async def test_a_container_that_may_trace_cannot_open_the_memory_of_an_exec(harness: support.ShimHarness) -> None:
    pod = await harness.pod("p")
    harness.create(pod, "main", [sys.executable, "-c", WATCH], capabilities=[*support.CAPABILITIES, SYS_PTRACE])
    await pod.start("main", 0)
    while "watching" not in harness.output(pod, "main"):
        await asyncio.sleep(0.01)
    for _ in range(25):
        with open(os.devnull, "r+b") as null:
            files = [null.fileno()] * 3
            channel = await pod.exec_channel({"op": "exec", "container": "main", "argv": ["true"], "tty": False}, files)
        async with channel:
            await channel.exec_started()
            await channel.exec_exited()
    assert harness.output(pod, "main") == ["watching"]


async def test_a_pod_has_a_session_keyring_of_its_own(harness: support.ShimHarness) -> None:
    """The keys of the login session of the plane's owner are not a container's, even without a seccomp filter."""
    number = {"x86_64": 250, "aarch64": 219}[platform.machine()]
    program = "print(json.dumps(libc.syscall(numbers['keyctl'], 0, -3, 1)))"
    libc = ctypes.CDLL(None, use_errno=True)
    own = libc.syscall(number, 0, -3, 1)
    if own < 0:
        pytest.skip(f"no keyrings: {os.strerror(ctypes.get_errno())}")
    theirs = await python_output(harness, program, seccomp="")
    assert theirs > 0
    assert theirs != own
