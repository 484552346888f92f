"""`yard run` and the SDK, interrupted while a request is under way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.api.gvr import CONFIG_MAPS, JOBS
from torchyard.api.objects import Object
from torchyard.cli import run_session
from torchyard.cli.apply import ManifestObject, Plan
from torchyard.cli.run_options import OnInterrupt, SessionOptions
from torchyard.cli.run_session import RunSession
from torchyard.kube.completion import complete
from torchyard.sdk import async_yard
from torchyard.sdk.async_yard import AsyncYard

ARCHIVE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "files", "namespace": "n", "uid": "files"},
    "binaryData": {"workspace.tar.gz": ""},
}
JOB: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n", "uid": "j"}}


class InterruptedClient:
    """Its caller is cancelled while the server creates an object of one kind. `objects` is what the server then has."""

    def __init__(self, kind: str) -> None:
        self.objects: dict[str, Object] = {}
        self._kind = kind
        self.is_busy, self._may_go_on = asyncio.Event(), asyncio.Event()

    async def create(self, _gvr: Any, obj: Object, _namespace: str, **_: Any) -> Object:
        if obj["kind"] == self._kind:
            self.is_busy.set()
            await self._may_go_on.wait()
        self.objects[obj["metadata"]["name"]] = obj
        return obj

    async def delete(self, _gvr: Any, name: str, _namespace: str, **_: Any) -> None:
        del self.objects[name]

    async def patch(self, _gvr: Any, name: str, patch: Object, _namespace: str, **_: Any) -> None:
        self.objects[name] = {**self.objects[name], "metadata": {**self.objects[name]["metadata"], **patch["metadata"]}}

    async def interrupt(self, work: asyncio.Future[Any]) -> None:
        await self.is_busy.wait()
        work.cancel()
        await asyncio.sleep(0)
        self._may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await work


def owners(obj: Object) -> list[str]:
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]


def run_command(monkeypatch: pytest.MonkeyPatch, client: InterruptedClient) -> asyncio.Future[Any]:
    async def plan(_client: Any, obj: Object, *_: Any, **__: Any) -> Plan:
        gvr = CONFIG_MAPS if obj["kind"] == "ConfigMap" else JOBS
        return Plan(ManifestObject(gvr, "n", obj), "created")

    async def locate(_client: Any, obj: Object, _namespace: str) -> Object:
        return obj

    async def apply(_client: Any, planned: Plan) -> Any:
        return planned.target.gvr, await client.create(planned.target.gvr, planned.target.object, "n")

    async def nothing(*_: Any) -> None: ...

    replaced = {"plan": plan, "locate": locate, "apply": apply, "check": nothing, "delete_replaced": nothing}
    for name, function in replaced.items():
        monkeypatch.setattr(run_session, name, function)
    screen = SimpleNamespace(note=lambda _text: None)
    options = SessionOptions("n", OnInterrupt.leave)
    session = RunSession(cast(Any, client), cast(Any, screen), options, "n")
    return asyncio.ensure_future(session.run([ARCHIVE, JOB]))


def run_sdk(monkeypatch: pytest.MonkeyPatch, client: InterruptedClient) -> asyncio.Future[Any]:
    async def find_resource(_client: Any, _api_version: str, kind: str) -> Any:
        return CONFIG_MAPS if kind == "ConfigMap" else JOBS

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(async_yard, "find_resource", find_resource)
    monkeypatch.setattr(AsyncYard, "_refuse_existing", nothing)
    yard = AsyncYard.__new__(AsyncYard)
    yard._client, yard.namespace = cast(Any, client), "n"
    return asyncio.ensure_future(yard._create([ARCHIVE, JOB]))


@pytest.mark.parametrize("run", [run_command, run_sdk])
async def test_an_interrupt_while_files_are_written_leaves_none(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    client = InterruptedClient("ConfigMap")
    await client.interrupt(run(monkeypatch, client))
    assert client.objects == {}


@pytest.mark.parametrize("run", [run_command, run_sdk])
async def test_a_job_that_is_interrupted_while_it_is_created_owns_its_files(
    monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    client = InterruptedClient("Job")
    await client.interrupt(run(monkeypatch, client))
    assert sorted(client.objects) == ["files", "j"]
    assert owners(client.objects["files"]) == ["j"]


async def test_what_is_completed_raises_its_error_or_the_cancellation() -> None:
    async def fail(gate: asyncio.Event) -> None:
        await gate.wait()
        raise ValueError("refused")

    gate = asyncio.Event()
    waiting = asyncio.ensure_future(complete(fail(gate)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ValueError, match="refused"):
        await complete(fail(gate))
