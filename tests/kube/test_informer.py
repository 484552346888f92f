"""The informer against a scripted server: initial list, changes, expired watches, servers without WatchList."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.kube.client import JSON, ApiResponse, Client, decode_watch_events
from torchyard.kube.informer import Informer, by_namespace, by_owner
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.packed_informer import PackedInformer
from torchyard.kube.transform import strip_managed_fields


@pytest.fixture(params=[Informer, PackedInformer])
def informer_class(request: pytest.FixtureRequest) -> type[Informer]:
    kind: type[Informer] = request.param
    return kind


def pod(name: str, resource_version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(resource_version), "labels": labels}}


class ScriptedServer:
    """Responds to lists with `items` and to watches from a queue of events, or of errors to raise."""

    def __init__(self, *, watch_list: bool = True) -> None:
        self.items: list[dict[str, Any]] = []
        self.resource_version = 1
        self.lines: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self.lists = 0
        self._watch_list = watch_list

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        self.lists += 1
        query = parse_qs(urlsplit(path).query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        metadata = {"resourceVersion": str(self.resource_version)}
        if start + limit < len(self.items):
            metadata["continue"] = str(start + limit)
        return ApiResponse(200, orjson.dumps({"metadata": metadata, "items": self.items[start : start + limit]}), {})

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
            end = {"resourceVersion": str(self.resource_version), "annotations": {"k8s.io/initial-events-end": "true"}}
            yield self._line("BOOKMARK", {"metadata": end})
        while True:
            line = await self.lines.get()
            if isinstance(line, Exception):
                raise line
            yield orjson.dumps(line) + b"\n"

    def _line(self, event_type: str, obj: dict[str, Any]) -> bytes:
        return orjson.dumps({"type": event_type, "object": obj}) + b"\n"

    def send(self, event_type: str, obj: dict[str, Any]) -> None:
        self.lines.put_nowait({"type": event_type, "object": obj})

    async def close(self) -> None:
        return None


@asynccontextmanager
async def running(informer: Informer) -> AsyncGenerator[list[tuple[str, str]], None]:
    changes: list[tuple[str, str]] = []
    informer.on_change(lambda event_type, obj, _before: changes.append((event_type, obj["metadata"]["name"])))
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.wait([task])


async def wait_until_processed(server: ScriptedServer) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.lines.empty()


async def test_the_cache_follows_the_server_and_handlers_get_every_change(informer_class: type[Informer]) -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1)]
    informer = informer_class(Client(server, manager="test"), PODS)
    async with running(informer) as changes:
        server.send("ADDED", pod("b", 2))
        server.send("MODIFIED", pod("a", 3))
        server.send("DELETED", pod("b", 4))
        await wait_until_processed(server)
        assert changes == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        cached = informer.get("n", "a")
        assert cached is not None and cached["metadata"]["resourceVersion"] == "3"
        assert len(informer) == 1


async def test_without_watchlist_the_informer_uses_list(informer_class: type[Informer]) -> None:
    server = ScriptedServer(watch_list=False)
    server.items = [pod("a", 1), pod("b", 1)]
    informer = informer_class(Client(server, manager="test"), PODS)
    async with running(informer):
        assert sorted(obj["metadata"]["name"] for obj in informer.all()) == ["a", "b"]


async def test_after_an_expired_resource_version_handlers_get_only_the_differences(
    informer_class: type[Informer],
) -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1), pod("gone", 1)]
    informer = informer_class(Client(server, manager="test"), PODS)
    async with running(informer) as changes:
        changes.clear()
        server.items, server.resource_version = [pod("a", 1), pod("new", 7)], 7
        server.lines.put_nowait(StatusError(410, "Expired", "too old resource version"))
        await wait_until_processed(server)
        assert sorted(changes) == [("ADDED", "new"), ("DELETED", "gone")]
        assert server.lists == 2


async def test_an_index_finds_objects_by_value_and_follows_changes(informer_class: type[Informer]) -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1, job="x"), pod("b", 1, job="y")]
    informer = informer_class(
        Client(server, manager="test"), PODS, indexes={"job": lambda obj: [obj["metadata"]["labels"].get("job", "")]}
    )
    async with running(informer):
        assert [obj["metadata"]["name"] for obj in informer.by("job", "x")] == ["a"]
        server.send("MODIFIED", pod("b", 2, job="x"))
        server.send("DELETED", pod("a", 3, job="x"))
        await wait_until_processed(server)
        assert [obj["metadata"]["name"] for obj in informer.by("job", "x")] == ["b"]
        assert informer.by("job", "y") == []


async def test_the_cache_drops_managed_fields(informer_class: type[Informer]) -> None:
    server = ScriptedServer()
    listed, changed = pod("a", 1), pod("b", 2)
    for obj in (listed, changed):
        obj["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    server.items = [listed]
    informer = informer_class(Client(server, manager="test"), PODS)
    async with running(informer):
        server.send("ADDED", changed)
        await wait_until_processed(server)
        assert len(informer) == 2
        assert not any("managedFields" in obj["metadata"] for obj in informer.all())


def test_the_same_selection_shares_one_informer() -> None:
    informers = InformerFactory(Client(ScriptedServer(), manager="test"))
    pods = informers.for_resource(PODS, indexes={"namespace": by_namespace})
    assert informers.for_resource(PODS, indexes={"owner": by_owner}) is pods
    assert informers.for_resource(PODS, labels="a=b") is not pods
    with pytest.raises(ValueError, match="already have another index 'owner'"):
        informers.for_resource(PODS, indexes={"owner": by_namespace})


def test_a_namespaced_factory_has_cluster_wide_informers_of_cluster_scoped_resources() -> None:
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


async def test_a_factory_without_informers_runs_until_cancelled() -> None:
    running = asyncio.ensure_future(InformerFactory(Client(ScriptedServer(), manager="test")).run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_other_tasks_run_while_a_long_list_is_taken() -> None:
    server = ScriptedServer()
    server.items = [pod(f"p{number}", 1) for number in range(1000)]
    informer = Informer(Client(server, manager="test"), PODS)
    handled: list[int] = []  # how many objects were handled at each turn of another task
    count = 0

    def handle(_change: str, _obj: Object, _before: Object | None) -> None:
        nonlocal count
        count += 1

    informer.on_change(handle)
    task = asyncio.create_task(informer.run())
    while not informer.synced.is_set():
        handled.append(count)
        await asyncio.sleep(0)
    task.cancel()
    assert len([number for number in handled if 0 < number < 1000]) >= 5
    assert len(informer) == 1000


async def test_after_a_list_that_was_interrupted_the_next_one_reports_the_rest() -> None:
    server = ScriptedServer()
    server.items = [pod(f"p{number}", 1) for number in range(1000)]
    informer = Informer(Client(server, manager="test"), PODS, indexes={"all": lambda _obj: ["yes"]})
    added: list[str] = []
    informer.on_change(lambda _change, obj, _before: added.append(obj["metadata"]["name"]))
    task = asyncio.create_task(informer.run())
    while not added:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert not informer.synced.is_set()
    async with running(informer):
        assert sorted(added) == sorted(f"p{number}" for number in range(1000))
        assert informer.count("all", "yes") == 1000


async def test_a_long_list_is_trimmed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "PAGE", 2)
    server = ScriptedServer(watch_list=False)
    server.items = [pod(f"p{number}", 1) for number in range(5)]
    pages_before: list[int] = []  # how many pages were requested when an object was trimmed

    def trim(obj: Object) -> Object:
        pages_before.append(server.lists)
        return _name_only(obj)

    informer = PackedInformer(Client(server, manager="test"), PODS, transform=trim)
    async with running(informer):
        assert pages_before == [1, 1, 2, 2, 3]
        assert len(informer) == 5


def _name_only(obj: Object) -> Object:
    metadata = obj["metadata"]
    return {"metadata": {key: metadata[key] for key in ("namespace", "name", "resourceVersion")}}


async def test_a_packed_cache_takes_little_more_memory_than_the_json_of_its_objects() -> None:
    server = ScriptedServer()
    server.items = [pod(f"p{number}", 1, app="x" * 200) for number in range(500)]
    informer = PackedInformer(Client(server, manager="test"), PODS)
    size = len(orjson.dumps(server.items[0]))
    tracemalloc.start()
    try:
        async with running(informer):
            gc.collect()
            traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*packed_informer.py")])
            assert len(informer) == 500
            assert sum(trace.size for trace in traces.traces) / 500 < size + 200
    finally:
        tracemalloc.stop()


async def test_a_reader_of_a_packed_cache_may_change_its_copy() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1)]
    informer = PackedInformer(Client(server, manager="test"), PODS)
    async with running(informer):
        for copy in (informer.get("n", "a"), *informer.all(), *informer):
            assert copy == pod("a", 1)
            copy["metadata"]["name"] = "changed"


async def test_callers_with_different_needs_share_a_cache_of_whole_objects() -> None:
    server = ScriptedServer()
    server.items = [pod("a", 1, job="x")]
    for needs in ((_name_only, _name_only), (_name_only, strip_managed_fields), (strip_managed_fields, _name_only)):
        informers = InformerFactory(Client(server, manager="test"))
        informer, _ = (informers.for_resource(PODS, transform=transform) for transform in needs)
        async with running(informer):
            cached = informer.get("n", "a")
            assert cached is not None and ("labels" in cached["metadata"]) == (set(needs) != {_name_only})


async def test_a_running_cache_of_parts_cannot_become_one_of_whole_objects() -> None:
    server = ScriptedServer()
    informers = InformerFactory(Client(server, manager="test"))
    async with running(informers.for_resource(PODS, transform=_name_only)):
        with pytest.raises(ValueError, match="has already begun to store a part of each object"):
            informers.for_resource(PODS)
