"""Recording events: creation, counting of repetitions, restarts of the recorder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from torchyard.api.gvr import EVENTS
from torchyard.kube.client import ApiResponse, Client, Transport
from torchyard.kube.event_recorder import EventRecorder
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work", "namespace": "default", "uid": "1", "resourceVersion": "7"},
}


def _now() -> datetime:
    return datetime.now(UTC)


async def _record(client: Client, *events: tuple[str, bool], clock: Callable[[], datetime] = _now) -> None:
    """Record events from the start of a recorder to its end."""
    recorder = EventRecorder(client, "test", clock=clock)
    for message, once in events:
        recorder.event(JOB, "Normal", "Happened", message, once=once)
    task = asyncio.create_task(recorder.run())
    recorder.event(JOB, "Normal", "Last", "the last event")
    while recorder.pending:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def test_repeated_events_are_counted_across_restarts_except_with_once(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        for _ in range(3):
            await _record(client, ("again", False), ("again", False), ("only once", True), ("only once", True))
        events = (await client.list(EVENTS, "default")).items
        assert {event["message"]: event["count"] for event in events} == {
            "again": 6,
            "only once": 1,
            "the last event": 3,
        }
        (again,) = [event for event in events if event["message"] == "again"]
        assert again["involvedObject"]["uid"] == "1"
        assert (again["source"], again["type"], again["reason"]) == ({"component": "test"}, "Normal", "Happened")


async def test_an_event_that_the_server_deleted_is_created_again(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        recorder = EventRecorder(client, "test")
        task = asyncio.create_task(recorder.run())
        for _ in range(2):
            recorder.event(JOB, "Warning", "Failed", "why")
            while recorder.pending:
                await asyncio.sleep(0.01)
            (event,) = (await client.list(EVENTS, "default")).items
            assert event["count"] == 1
            await client.delete(EVENTS, event["metadata"]["name"], "default")
        task.cancel()
        await asyncio.wait([task])


async def test_events_within_a_second_are_listed_in_the_order_of_recording(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        messages = [f"step {number * 7919 % 31}" for number in range(31)]
        for part in (messages[:20], messages[20:]):
            await _record(client, *((message, True) for message in part), clock=lambda: moment)
        events = (await client.list(EVENTS, "default")).items
        assert [event["message"] for event in events if event["reason"] == "Happened"] == messages
        assert all(event["metadata"]["name"].startswith("work.1886999c36a1") for event in events)


async def test_events_of_another_component_are_not_counted(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*")) as plane:
        client = plane.client("test")
        await _record(client, ("again", False))
        other = EventRecorder(client, "other")
        task = asyncio.create_task(other.run())
        other.event(JOB, "Normal", "Happened", "again")
        while other.pending:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        events = (await client.list(EVENTS, "default")).items
        assert sorted(
            (event["source"]["component"], event["count"]) for event in events if event["message"] == "again"
        ) == [
            ("other", 1),
            ("test", 1),
        ]


class _SlowServer:
    """A transport whose creates take a minute of the recorder's clock, and no time."""

    def __init__(self) -> None:
        self.seconds, self.created = 0.0, 0

    async def request(self, method: str, path: str, **_: Any) -> ApiResponse:
        if method == "POST":
            self.seconds += 60.0
            self.created += 1
        return ApiResponse(200, b'{"metadata":{},"items":[]}', {})


async def test_the_pause_after_a_slow_write_ends_with_the_work_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server, work = _SlowServer(), ["pending"]
    monkeypatch.setattr("torchyard.kube.event_recorder.time.perf_counter", lambda: server.seconds)
    recorder = EventRecorder(Client(cast(Transport, server), manager="test"), "test", is_busy=lambda: bool(work))
    for number in range(3):
        recorder.event(JOB, "Normal", "Happened", str(number))
    task = asyncio.create_task(recorder.run())
    while not server.created:
        await asyncio.sleep(0)
    assert server.created == 1  # the others wait for nine minutes, or until there is nothing more important
    work.clear()
    while recorder.pending:
        await asyncio.sleep(0.01)
    assert server.created == 3
    task.cancel()
    await asyncio.wait([task])
