"""Stopping a node from its state directory alone, also when a process does not reply."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.node.support import NETWORK, machine, processes_with
from tests.support.waiting import eventually

from torchyard.node.shim import client, shim_server, wire
from torchyard.node.shutdown import stop_pods


async def test_a_shim_that_does_not_reply_is_logged_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "REPLY_SECONDS", 0.2)
    home = tmp_path / "pods" / "some-uid"
    home.mkdir(parents=True)
    with wire.listen(str(home), shim_server.SOCKET):
        assert await stop_pods(tmp_path) == 0
    assert "pod may still be running: error='shim.sock of some-uid did not reply within" in caplog.text


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_node_that_is_stopped_while_it_starts_leaves_no_process(tmp_path: Path, cancellations: int) -> None:
    """A part that takes long to stop is cancelled again and again."""
    zygote = client.ZygoteClient(tmp_path, {"namespaces": machine().sandbox, "network": NETWORK})
    start = asyncio.create_task(zygote.ensure())
    while not processes_with(str(tmp_path)):
        await asyncio.sleep(0.001)
    for _ in range(cancellations):
        start.cancel()
        await asyncio.sleep(0.001)
    await asyncio.wait([start])
    await stop_pods(tmp_path)
    eventually(lambda: not processes_with(str(tmp_path)), "the end of all that was started")
