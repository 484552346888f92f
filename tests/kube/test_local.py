"""Clients in the server's own process: what a watch gives one of them is the object that was written, and its alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest
from tests.conformance.objects import crd, custom

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.kube.client import Client, WatchEvent
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
BOATS = GroupVersionResource("test.torchyard.dev", "v1", "boats")
STATUS = {"type": "object", "properties": {"knots": {"type": "array", "items": {"type": "integer"}}}}
SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"status": STATUS}}}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        yield plane


@pytest.fixture
async def client(plane: Plane) -> Client:
    """A client of a plane with one custom object."""
    client = plane.client("test")
    await client.create(DEFINITIONS, crd("boats", version={"schema": SCHEMA, "subresources": {"status": {}}}))
    await client.create(BOATS, custom("Boat", "a"), "default")
    return client


async def initial_objects(stream: AsyncGenerator[WatchEvent, None]) -> list[Object]:
    """Return the objects before the first bookmark."""
    objects: list[Object] = []
    async for change, obj in stream:
        if change == "BOOKMARK":
            return objects
        objects.append(obj)
    raise AssertionError("the watch ended")


async def test_concurrent_watches_get_equal_but_separate_objects(client: Client) -> None:
    streams = [client.watch(BOATS, initial=True) for _ in range(3)]
    for stream in streams:
        await initial_objects(stream)
    await client.patch(BOATS, "a", {"status": {"knots": [1, 2]}}, "default", subresource="status")
    events = [await anext(stream) for stream in streams]
    stored = await client.get(BOATS, "a", "default")
    assert stored["status"] == {"knots": [1, 2]}
    assert events == [WatchEvent("MODIFIED", stored)] * 3
    for number, (_, obj) in enumerate(events):
        obj["status"]["knots"].append(number)
        obj["metadata"]["labels"] = {"number": str(number)}
    assert [obj["status"]["knots"] for _, obj in events] == [[1, 2, 0], [1, 2, 1], [1, 2, 2]]
    assert [obj["metadata"]["labels"]["number"] for _, obj in events] == ["0", "1", "2"]
    assert await client.get(BOATS, "a", "default") == stored
    for stream in streams:
        await stream.aclose()


async def test_initial_objects_of_a_watch_are_separate_copies(client: Client) -> None:
    stored = await client.get(BOATS, "a", "default")
    async with aclosing(client.watch(BOATS, initial=True)) as stream:
        (boat,) = await initial_objects(stream)
    assert boat == stored
    boat["metadata"].clear()
    assert await client.get(BOATS, "a", "default") == stored


async def test_a_metadata_only_watch_gets_partial_objects(client: Client) -> None:
    async with aclosing(client.watch(BOATS, initial=True, metadata_only=True)) as stream:
        await initial_objects(stream)
        await client.patch(BOATS, "a", {"status": {"knots": [1]}}, "default", subresource="status")
        _, obj = await anext(stream)
    assert obj.keys() == {"apiVersion", "kind", "metadata"}
    assert obj["kind"] == "PartialObjectMetadata"


async def test_a_refused_watch_raises_its_status(client: Client) -> None:
    with pytest.raises(StatusError, match="could not find the requested resource") as caught:
        await anext(client.watch(GroupVersionResource("test.torchyard.dev", "v1", "ships")))
    assert caught.value.status == 404


async def test_a_compacted_resource_version_raises_410(plane: Plane, client: Client) -> None:
    await client.patch(BOATS, "a", {"status": {"knots": [1]}}, "default", subresource="status")
    plane.server.registry.store.compact(keep_seconds=0, keep_revisions=0)
    with pytest.raises(StatusError, match="too old resource version") as caught:
        await anext(client.watch(BOATS, since="1"))
    assert caught.value.status == 410


async def test_a_watch_sends_every_event_before_its_last_bookmark(client: Client) -> None:
    """A client resumes from the last bookmark, and a busy server still has events when the watch times out."""
    written: list[int] = []
    number = count()
    is_over = asyncio.Event()

    async def write() -> None:
        while not is_over.is_set():
            obj = await client.patch(BOATS, "a", {"status": {"knots": [next(number)]}}, "default", subresource="status")
            written.append(int(obj["metadata"]["resourceVersion"]))

    async with aclosing(client.watch(BOATS, initial=True, seconds=1)) as stream:
        await initial_objects(stream)
        writers = [asyncio.create_task(write()) for _ in range(4)]
        received = [(change, int(obj["metadata"]["resourceVersion"])) async for change, obj in stream]
    is_over.set()
    await asyncio.gather(*writers)
    *events, last = received
    assert last[0] == "BOOKMARK"
    assert [revision for _, revision in events] == [version for version in sorted(written) if version <= last[1]]
