"""How `yard run` replaces and checks jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object
from torchyard.cli.apply import ManifestObject, Plan, check, delete_replaced
from torchyard.kube.client import Client, ObjectList, WatchEvent

EXISTING: Object = {"kind": "Job", "metadata": {"name": "a-job", "uid": "u1", "resourceVersion": "5"}}
TARGET = ManifestObject(JOBS, "default", {"kind": "Job", "metadata": {"name": "a-job"}})


class Server:
    """Deletes a job slowly, ends its first watch early, and has forgotten old revisions."""

    def __init__(self) -> None:
        self.watches = 0
        self.sent: list[Object] = []

    async def delete(self, *_: Any, **__: Any) -> None: ...

    async def list(self, *_: Any, **__: Any) -> ObjectList:
        return ObjectList([EXISTING] if self.watches < 2 else [], "9000")

    async def watch(self, *_: Any, since: str, **__: Any) -> AsyncGenerator[WatchEvent, None]:
        if since != "9000":
            raise StatusError(410, "Expired", "too old resource version")
        self.watches += 1
        if self.watches == 2:
            yield WatchEvent("DELETED", EXISTING)

    async def create(self, _: Any, obj: Object, *__: Any, **___: Any) -> Object:
        self.sent.append(obj)
        name = obj["metadata"]["generateName"] + "x2b4c"
        raise StatusError(422, "Invalid", f'Job "{name}" is invalid: spec: Required value')


async def test_an_old_job_is_replaced_when_it_is_gone() -> None:
    server = Server()
    await delete_replaced(cast(Client, server), Plan(TARGET, "replaced", EXISTING))
    assert server.watches == 2


async def test_the_new_job_is_validated_before_the_old_one_is_deleted() -> None:
    server = Server()
    with pytest.raises(StatusError, match='Job "a-job" is invalid'):
        await check(cast(Client, server), Plan(TARGET, "replaced", EXISTING))
    assert "name" not in server.sent[0]["metadata"]
    assert "name" in TARGET.object["metadata"]
    await check(cast(Client, server), Plan(TARGET, "unchanged", EXISTING))
    assert len(server.sent) == 1
