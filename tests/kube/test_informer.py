"""The informer against a scripted server: first list, changes, gaps, servers without WatchList."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.kube.client import JSON, ApiResponse, Client, decode_watch_events
from torchyard.kube.informer import Informer, by_namespace, by_owner
from torchyard.kube.informer_factory import InformerFactory


def pod(name: str, revision: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(revision), "labels": labels}}


class ScriptedServer:
    """Answers lists from `items` and watches from a queue of lines, or of errors to raise."""

    def __init__(self, *, watch_list: bool = True) -> None:
        self.items: list[dict[str, Any]] = []
        self.revision = 1
        self.lines: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self.lists = 0
        self._watch_list = watch_list

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        self.lists += 1
        metadata = {"resourceVersion": str(self.revision)}
        return ApiResponse(200, orjson.dumps({"metadata": metadata, "items": self.items}), {})

    def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[dict[str, Any]], None]:
        return decode_watch_events(self.stream(path, accept=accept))

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        query = parse_qs(urlsplit(path).query)
        if "sendInitialEvents" in query:
            if not self._watch_list:
                raise StatusError(422, "Invalid", "sendInitialEvents is forbidden")
            self.lists += 1
            for item in self.items:
                yield self._line("ADDED", item)
            end = {"resourceVersion": str(self.revision), "annotations": {"k8s.io/initial-events-end": "true"}}
            yield self._line("BOOKMARK", {"metadata": end})
        while True:
            line = await self.lines.get()
            if isinstance(line, Exception):
                raise line
            yield orjson.dumps(line) + b"\n"

    def _line(self, change: str, obj: dict[str, Any]) -> bytes:
        return orjson.dumps({"type": change, "object": obj}) + b"\n"

    def say(self, change: str, obj: dict[str, Any]) -> None:
        self.lines.put_nowait({"type": change, "object": obj})

    async def close(self) -> None:
        return None


@asynccontextmanager
async def running(informer: Informer) -> AsyncGenerator[list[tuple[str, str]], None]:
    told: list[tuple[str, str]] = []
    informer.on_change(lambda change, obj, _before: told.append((change, obj["metadata"]["name"])))
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.wait([task])


async def settled(server: ScriptedServer) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.lines.empty()


async def test_the_cache_follows_the_server_and_handlers_hear_every_change() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1)]
    informer = Informer(Client(server, manager="test"), PODS)
    async with running(informer) as told:
        server.say("ADDED", pod("b", 2))
        server.say("MODIFIED", pod("a", 3))
        server.say("DELETED", pod("b", 4))
        await settled(server)
        assert told == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        found = informer.get("n", "a")
        assert found is not None and found["metadata"]["resourceVersion"] == "3"
        assert len(informer) == 1


async def test_a_server_without_watchlist_is_listed_instead() -> None:
    server = ScriptedServer(watch_list=False)
    server.items = [pod("a", 1), pod("b", 1)]
    informer = Informer(Client(server, manager="test"), PODS)
    async with running(informer):
        assert sorted(one["metadata"]["name"] for one in informer.all()) == ["a", "b"]


async def test_after_an_expired_revision_it_lists_again_and_tells_only_what_changed() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1), pod("gone", 1)]
    informer = Informer(Client(server, manager="test"), PODS)
    async with running(informer) as told:
        told.clear()
        server.items, server.revision = [pod("a", 1), pod("new", 7)], 7
        server.lines.put_nowait(StatusError(410, "Expired", "too old resource version"))
        await settled(server)
        assert sorted(told) == [("ADDED", "new"), ("DELETED", "gone")]
        assert server.lists == 2


async def test_an_index_finds_objects_by_value_and_follows_changes() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1, job="x"), pod("b", 1, job="y")]
    informer = Informer(
        Client(server, manager="test"), PODS, indexes={"job": lambda one: [one["metadata"]["labels"].get("job", "")]}
    )
    async with running(informer):
        assert [one["metadata"]["name"] for one in informer.by("job", "x")] == ["a"]
        server.say("MODIFIED", pod("b", 2, job="x"))
        server.say("DELETED", pod("a", 3, job="x"))
        await settled(server)
        assert [one["metadata"]["name"] for one in informer.by("job", "x")] == ["b"]
        assert informer.by("job", "y") == []


async def test_the_cache_leaves_out_managed_fields() -> None:
    server = ScriptedServer()
    listed, changed = pod("a", 1), pod("b", 2)
    for one in (listed, changed):
        one["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    server.items = [listed]
    informer = Informer(Client(server, manager="test"), PODS)
    async with running(informer):
        server.say("ADDED", changed)
        await settled(server)
        assert len(informer) == 2
        assert not any("managedFields" in one["metadata"] for one in informer.all())


def test_who_asks_for_the_same_selection_gets_the_same_informer() -> None:
    informers = InformerFactory(Client(ScriptedServer(), manager="test"))
    pods = informers.for_resource(PODS, indexes={"namespace": by_namespace})
    assert informers.for_resource(PODS, indexes={"owner": by_owner}) is pods
    assert informers.for_resource(PODS, labels="a=b") is not pods
    with pytest.raises(ValueError, match="indexed by 'owner' in another way"):
        informers.for_resource(PODS, indexes={"owner": by_namespace})


def test_informers_of_one_namespace_see_cluster_scoped_objects_whole() -> None:
    informers = InformerFactory(Client(ScriptedServer(), manager="test"), namespace="n")
    assert informers.for_resource(PODS) is informers.for_resource(PODS, namespace="n")
    nodes = GroupVersionResource("", "v1", "nodes", namespaced=False)
    assert informers.for_resource(nodes) is informers.for_resource(nodes, namespace="n")


async def test_shared_informers_run_together() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1)]
    informers = InformerFactory(Client(server, manager="test"))
    pods, services = informers.for_resource(PODS), informers.for_resource(GroupVersionResource("", "v1", "services"))
    task = asyncio.create_task(informers.run())
    await asyncio.gather(pods.synced.wait(), services.synced.wait())
    assert len(pods) == 1
    task.cancel()
    await asyncio.wait([task])


async def test_informers_that_nobody_asked_for_run_until_they_are_cancelled() -> None:
    running = asyncio.ensure_future(InformerFactory(Client(ScriptedServer(), manager="test")).run())
    done, _ = await asyncio.wait([running], timeout=0.05)
    assert not done
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
