"""What the pages of one job show, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.cli.tui.job_data import JobData
from torchyard.jobs import follow_logs
from torchyard.kube.client import ObjectList
from torchyard.kube.job_lookup import JobHandle

JOB: Object = {
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "team", "uid": "u"},
    "spec": {"selector": {"matchLabels": {"job-name": "j"}}},
    "status": {"conditions": [{"type": "Failed", "status": "True"}]},
}


def pod(name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "ownerReferences": [{"uid": "u"}]},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {}}}]},
    }


class FilledInformer:
    """The cache of a job that has ended, and of its two pods."""

    def __init__(self, _client: Any, ref: Any, **_: str) -> None:
        self._objects = [pod("j-a"), pod("j-b")] if ref == PODS else [JOB]
        self.synced = asyncio.Event()
        self.synced.set()

    def on_change(self, _handler: Any) -> None: ...

    async def run(self) -> None: ...

    def all(self) -> list[Object]:
        return self._objects

    def get(self, _namespace: str, _name: str) -> Object:
        return self._objects[0]


class LogClient:
    """One log cannot be read, and the other one comes later."""

    def __init__(self, status: int) -> None:
        self._status = status

    async def list(self, *_: Any, **__: Any) -> ObjectList:
        return ObjectList([pod("j-a"), pod("j-b")], "1")

    async def logs(self, _ref: Any, name: str, _namespace: str, **_: Any) -> AsyncIterator[bytes]:
        if name == "j-a":
            raise StatusError(self._status, "Reason", "no such file")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        yield b"2026-01-01T00:00:00Z trained\n"


@pytest.mark.parametrize("status", [400, 403, 500])
async def test_a_log_that_cannot_be_read_is_explained_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(follow_logs, "Informer", FilledInformer)
    data = JobData(cast(Any, LogClient(status)), cast(Any, None), JobHandle(JOBS, JOB), lambda: None, cast(Any, None))
    data.follow_logs()
    await data._follow_logs()
    assert [(line.replica, line.text) for line in data.logs.lines] == [
        ("a", "-- the log cannot be read: no such file --"),
        ("b", "trained"),
    ]
