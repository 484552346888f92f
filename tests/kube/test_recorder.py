"""Events are told once and counted after that, also by a recorder that knows nothing of the one before it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from torchyard.kube.client import Client
from torchyard.kube.recorder import Recorder
from torchyard.kube.refs import EVENTS
from torchyard.yard.plane import Plane
from torchyard.yard.settings import Settings

Object = dict[str, Any]
ABOUT = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work", "namespace": "default", "uid": "1", "resourceVersion": "7"},
}


async def _told(client: Client, *events: tuple[str, bool]) -> None:
    """What a controller tells from its start to its end."""
    recorder = Recorder(client, "test")
    for message, once in events:
        recorder.event(ABOUT, "Normal", "Happened", message, once=once)
    task = asyncio.create_task(recorder.run())
    recorder.event(ABOUT, "Normal", "Last", "that was all")
    while recorder.pending:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def test_the_same_event_is_counted_across_restarts_unless_once_is_enough(tmp_path: Path) -> None:
    async with Plane(Settings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        for _ in range(3):
            await _told(client, ("again", False), ("again", False), ("only once", True), ("only once", True))
        events = (await client.list(EVENTS, "default")).items
        assert {one["message"]: one["count"] for one in events} == {"again": 6, "only once": 1, "that was all": 3}
        (again,) = [one for one in events if one["message"] == "again"]
        assert again["involvedObject"]["uid"] == "1"
        assert (again["source"], again["type"], again["reason"]) == ({"component": "test"}, "Normal", "Happened")


async def test_an_event_that_the_server_has_forgotten_is_told_anew(tmp_path: Path) -> None:
    async with Plane(Settings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        recorder = Recorder(client, "test")
        task = asyncio.create_task(recorder.run())
        for _ in range(2):
            recorder.event(ABOUT, "Warning", "Failed", "why")
            while recorder.pending:
                await asyncio.sleep(0.01)
            (event,) = (await client.list(EVENTS, "default")).items
            assert event["count"] == 1
            await client.delete(EVENTS, event["metadata"]["name"], "default")
        task.cancel()
        await asyncio.wait([task])
