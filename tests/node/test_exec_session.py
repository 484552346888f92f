"""The start of an exec, with a shim that does not reply."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.api.errors import StatusError
from torchyard.node.pod.handlers import run_command
from torchyard.node.shim import client, shim_server, wire
from torchyard.node.shim.client import ShimClient
from torchyard.node.streams import ExecSession


@pytest.fixture
def silent_shim(tmp_path: Path) -> Iterator[socket.socket]:
    with wire.listen(str(tmp_path), shim_server.SOCKET) as listener:
        listener.setblocking(False)
        yield listener


def open_files() -> set[str]:
    return {f"{name} {os.readlink(f'/proc/self/fd/{name}')}" for name in os.listdir("/proc/self/fd") if _exists(name)}


def _exists(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


async def test_a_probe_of_a_pod_without_a_shim_leaves_no_pipes(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(client.ShimNotRunning):
        await run_command(ShimClient(tmp_path), "main", ["true"], seconds=1)
    for _ in range(3):  # the task is cancelled, then its callback is called
        await asyncio.sleep(0)
    assert open_files() == before


async def test_an_exec_that_does_not_start_is_an_error(
    silent_shim: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REPLY_SECONDS", 0.01)
    before = open_files()
    with pytest.raises(StatusError, match=r"it did not start within 0\.01 s") as raised:
        await ExecSession.start(ShimClient(tmp_path), "main", ["true"], stdin=True, tty=False)
    assert raised.value.status == 500
    assert open_files() == before


async def test_a_client_that_leaves_while_its_exec_starts_leaves_no_pipes(
    silent_shim: socket.socket, tmp_path: Path
) -> None:
    before = open_files()
    start = ExecSession.start(ShimClient(tmp_path), "main", ["true"], stdin=False, tty=False)
    starting = asyncio.ensure_future(start)
    accepted, _ = await asyncio.get_running_loop().sock_accept(silent_shim)
    with accepted:
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert open_files() == before
