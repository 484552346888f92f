"""Blocking work of the node."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchyard.api.objects import Object
from torchyard.node import threads
from torchyard.node.threads import in_thread
from torchyard.node.volumes import mounter
from torchyard.node.volumes.mounter import VolumeMounter


async def test_host_paths_that_do_not_answer_leave_the_threads_of_the_event_loop_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    asked: list[object] = []
    mounts: list[asyncio.Task[object]] = []

    def check(path: Path, _kind: str, *, state: Path) -> None:
        asked.append((path, state))
        released.wait()

    with ThreadPoolExecutor(2) as few:
        asyncio.get_running_loop().set_default_executor(few)
        monkeypatch.setattr(mounter, "check_host_path", check)
        volumes = VolumeMounter(tmp_path, tmp_path, fetch=_nothing, token=_no_token, field=lambda *_: "")
        try:
            for _ in range(4):
                mount = volumes.mount({"name": "share", "hostPath": {"path": "/mnt/share"}})
                mounts.append(asyncio.create_task(mount))
            async with asyncio.timeout(60):
                while len(asked) < 2:
                    await asyncio.sleep(0.01)
                assert await asyncio.to_thread(str, 1) == "1"
                assert await in_thread(int, "2", base=8) == 2
        finally:
            released.set()
            await asyncio.gather(*mounts)


async def _nothing(_kind: str, _name: str) -> None:
    return None


async def _no_token(_source: Object) -> str:
    return ""


async def test_an_exception_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.in_thread(int, "x")
