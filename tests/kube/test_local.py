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
    """Of a plane where there is a boat."""
    client = plane.client("test")
    await client.create(DEFINITIONS, crd("boats", version={"schema": SCHEMA, "subresources": {"status": {}}}))
    await client.create(BOATS, custom("Boat", "a"), "default")
    return client


async def begun(stream: AsyncGenerator[WatchEvent, None]) -> list[Object]:
    """What a watch begins with."""
    found: list[Object] = []
    async for change, obj in stream:
        if change == "BOOKMARK":
            return found
        found.append(obj)
    raise AssertionError("the watch ended")


async def test_all_who_watch_are_given_the_same_and_each_its_own(client: Client) -> None:
    streams = [client.watch(BOATS, initial=True) for _ in range(3)]
    for stream in streams:
        await begun(stream)
    await client.patch(BOATS, "a", {"status": {"knots": [1, 2]}}, "default", subresource="status")
    told = [await anext(stream) for stream in streams]
    there = await client.get(BOATS, "a", "default")
    assert there["status"] == {"knots": [1, 2]}
    assert told == [WatchEvent("MODIFIED", there)] * 3
    for number, (_, obj) in enumerate(told):
        obj["status"]["knots"].append(number)
        obj["metadata"]["labels"] = {"number": str(number)}
    assert [obj["status"]["knots"] for _, obj in told] == [[1, 2, 0], [1, 2, 1], [1, 2, 2]]
    assert [obj["metadata"]["labels"]["number"] for _, obj in told] == ["0", "1", "2"]
    assert await client.get(BOATS, "a", "default") == there
    for stream in streams:
        await stream.aclose()


async def test_what_a_watch_begins_with_is_its_own_too(client: Client) -> None:
    there = await client.get(BOATS, "a", "default")
    async with aclosing(client.watch(BOATS, initial=True)) as stream:
        (boat,) = await begun(stream)
    assert boat == there
    boat["metadata"].clear()
    assert await client.get(BOATS, "a", "default") == there


async def test_metadata_alone_is_told_where_that_is_asked_for(client: Client) -> None:
    async with aclosing(client.watch(BOATS, initial=True, metadata_only=True)) as stream:
        await begun(stream)
        await client.patch(BOATS, "a", {"status": {"knots": [1]}}, "default", subresource="status")
        _, obj = await anext(stream)
    assert obj.keys() == {"apiVersion", "kind", "metadata"}
    assert obj["kind"] == "PartialObjectMetadata"


async def test_a_refused_watch_is_raised_as_the_status_it_is(client: Client) -> None:
    with pytest.raises(StatusError, match="could not find the requested resource") as caught:
        await anext(client.watch(GroupVersionResource("test.torchyard.dev", "v1", "ships")))
    assert caught.value.status == 404


async def test_a_revision_that_is_forgotten_is_raised_as_expired(plane: Plane, client: Client) -> None:
    await client.patch(BOATS, "a", {"status": {"knots": [1]}}, "default", subresource="status")
    plane.server.registry.store.compact(keep_seconds=0, keep_revisions=0)
    with pytest.raises(StatusError, match="too old resource version") as caught:
        await anext(client.watch(BOATS, since="1"))
    assert caught.value.status == 410


async def test_nothing_before_the_last_bookmark_is_left_out(client: Client) -> None:
    """Whoever watches again goes on from there. A server that is busy has something to tell when the time is up."""
    written: list[int] = []
    number = count()
    is_over = asyncio.Event()

    async def write() -> None:
        while not is_over.is_set():
            obj = await client.patch(BOATS, "a", {"status": {"knots": [next(number)]}}, "default", subresource="status")
            written.append(int(obj["metadata"]["resourceVersion"]))

    async with aclosing(client.watch(BOATS, initial=True, seconds=1)) as stream:
        await begun(stream)
        writers = [asyncio.create_task(write()) for _ in range(4)]
        told = [(change, int(obj["metadata"]["resourceVersion"])) async for change, obj in stream]
    is_over.set()
    await asyncio.gather(*writers)
    *events, last = told
    assert last[0] == "BOOKMARK"
    assert [revision for _, revision in events] == [one for one in sorted(written) if one <= last[1]]
