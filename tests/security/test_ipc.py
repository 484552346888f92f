"""System V IPC and message queues: a pod's own, shared by its containers; the machine's only with hostIPC."""

from __future__ import annotations

import ctypes
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.node import support
from tests.security.sandbox_support import output_of

_libc = ctypes.CDLL(None, use_errno=True)
KEY = 0x7A7A0000 | (os.getpid() & 0xFFFF)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


@pytest.fixture
def segment() -> Iterator[int]:
    """A shared memory segment of the machine."""
    identifier = _libc.shmget(KEY, 4096, 0o1666)
    if identifier < 0:
        pytest.skip(f"no System V shared memory: {os.strerror(ctypes.get_errno())}")
    yield identifier
    _libc.shmctl(identifier, 0, None)


def exists(identifier: int) -> bool:
    return bool(_libc.shmget(KEY, 0, 0) == identifier)


SEGMENTS = "tail -n +2 /proc/sysvipc/shm | wc -l"


async def test_a_pod_neither_sees_nor_removes_the_machines_segments(harness: support.ShimHarness, segment: int) -> None:
    assert await output_of(harness, f"{SEGMENTS}; ipcrm -m {segment} 2>/dev/null; true") == "0"
    assert exists(segment)


async def test_the_containers_of_a_pod_share_their_segments(harness: support.ShimHarness) -> None:
    pod = await harness.pod("p")
    await output_of(harness, "ipcmk -M 64 >/dev/null", pod=pod, name="first")
    assert await output_of(harness, SEGMENTS, pod=pod, name="second") == "1"
    assert await output_of(harness, SEGMENTS) == "0", "another pod's"


async def test_host_ipc_shares_the_machines(harness: support.ShimHarness, segment: int) -> None:
    pod = await harness.pod("p", ipc="NODE")
    script = f"cut -c1-24 /proc/sysvipc/shm | grep -cw {segment}"
    assert await output_of(harness, script, pod=pod) == "1"


async def test_message_queues_are_the_pods(harness: support.ShimHarness) -> None:
    if "mqueue" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no message queues")
    pod = await harness.pod("p")
    await output_of(harness, "touch /dev/mqueue/mine", pod=pod, name="first")
    assert await output_of(harness, "ls /dev/mqueue", pod=pod, name="second") == "mine"
    assert await output_of(harness, "ls /dev/mqueue") == ""
