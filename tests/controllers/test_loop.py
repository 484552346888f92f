"""What a controller writes into the log about a reconciliation that failed, before it tries again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from torchyard.api.errors import StatusError, YardError
from torchyard.controllers.loop import Controller
from torchyard.kube.informer import Key

TERMINATING = StatusError(
    403, "Forbidden", "it is being terminated", details={"causes": [{"reason": "NamespaceTerminating"}]}
)


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        (StatusError(409, "Conflict", "the object has been modified"), 0),
        (StatusError(404, "NotFound", "it is gone"), 0),
        (TERMINATING, 0),
        (StatusError(403, "Forbidden", "no permission"), 1),
        (StatusError(500, "InternalError", "no space left"), 1),
        (YardError("unreachable"), 1),
    ],
    ids=str,
)
def test_what_ends_by_itself_is_tried_again_without_a_warning(
    error: YardError, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        calls, done = 0, asyncio.Event()

        async def reconcile(_key: Key) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise error
            done.set()

        controller = Controller("tested", reconcile, [])
        running = asyncio.ensure_future(controller.run())
        controller.queue.add(("namespace", "name"))
        await asyncio.wait_for(done.wait(), 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with caplog.at_level(logging.DEBUG, "torchyard.controllers.loop"):
        asyncio.run(run())
    assert [record.levelno for record in caplog.records] == [logging.WARNING if warnings else logging.DEBUG]
