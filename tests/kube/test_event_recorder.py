"""Events are told once and counted after that, also by a recorder that knows nothing of the one before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from torchyard.api.gvr import EVENTS
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

ABOUT = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work", "namespace": "default", "uid": "1", "resourceVersion": "7"},
}


def _now() -> datetime:
    return datetime.now(UTC)


async def _told(client: Client, *events: tuple[str, bool], clock: Callable[[], datetime] = _now) -> None:
    """What a controller tells from its start to its end."""
    recorder = EventRecorder(client, "test", clock=clock)
    for message, once in events:
        recorder.event(ABOUT, "Normal", "Happened", message, once=once)
    task = asyncio.create_task(recorder.run())
    recorder.event(ABOUT, "Normal", "Last", "that was all")
    while recorder.pending:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def test_the_same_event_is_counted_across_restarts_unless_once_is_enough(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        for _ in range(3):
            await _told(client, ("again", False), ("again", False), ("only once", True), ("only once", True))
        events = (await client.list(EVENTS, "default")).items
        assert {one["message"]: one["count"] for one in events} == {"again": 6, "only once": 1, "that was all": 3}
        (again,) = [one for one in events if one["message"] == "again"]
        assert again["involvedObject"]["uid"] == "1"
        assert (again["source"], again["type"], again["reason"]) == ({"component": "test"}, "Normal", "Happened")


async def test_an_event_that_the_server_has_forgotten_is_told_anew(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        recorder = EventRecorder(client, "test")
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


async def test_events_of_the_same_moment_are_listed_in_the_order_in_which_they_were_told(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        messages = [f"step {number * 7919 % 31}" for number in range(31)]
        for part in (messages[:20], messages[20:]):
            await _told(client, *((message, True) for message in part), clock=lambda: moment)
        events = (await client.list(EVENTS, "default")).items
        assert [one["message"] for one in events if one["reason"] == "Happened"] == messages
        assert all(one["metadata"]["name"].startswith("work.1886999c36a1") for one in events)


async def test_what_another_component_told_is_not_counted(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        await _told(client, ("again", False))
        other = EventRecorder(client, "other")
        task = asyncio.create_task(other.run())
        other.event(ABOUT, "Normal", "Happened", "again")
        while other.pending:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        events = (await client.list(EVENTS, "default")).items
        assert sorted((one["source"]["component"], one["count"]) for one in events if one["message"] == "again") == [
            ("other", 1),
            ("test", 1),
        ]
