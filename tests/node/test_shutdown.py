"""What ends a node from its state directory alone, where somebody does not do as told."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.node.shim import client, server, wire
from torchyard.node.shutdown import stop_pods


async def test_a_shim_that_does_not_answer_is_named_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.2)
    home = tmp_path / "pods" / "some-uid"
    home.mkdir(parents=True)
    with wire.listen(str(home), server.SOCKET):
        assert await stop_pods(tmp_path) == 0
    assert "a pod may run on: shim.sock of some-uid did not answer within" in caplog.text
