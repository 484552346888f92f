"""Point 59: an Event expires when it has not been updated for its time to live."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.conformance.objects import Object, path
from tests.support.effort import FULL
from tests.support.kubernetes import MISSING, Kubernetes, assets
from tests.support.waiting import eventually

from torchyard.api.gvr import EVENTS
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.lifecycle.compactor import EVENT_TTL, Compactor
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings


def event(name: str) -> Object:
    involved = {"kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name, "namespace": "default"}, "involvedObject": involved, "reason": "Started"}


@pytest.mark.point(59)
async def test_an_event_lives_for_an_hour_after_it_was_last_written(tmp_path: Path) -> None:
    async with Plane(PlaneSettings(state=tmp_path, port=0, controllers="-*")) as plane:
        client, now = plane.client("test"), plane.registry.clock()
        for name in ("old", "repeated"):
            await client.create(EVENTS, event(name))
        almost, later = now + EVENT_TTL - timedelta(minutes=1), now + EVENT_TTL + timedelta(minutes=1)
        again = {"count": 2, "lastTimestamp": to_rfc3339(almost)}
        await client.patch(EVENTS, "repeated", again, "default")
        upkeep = Compactor(plane.registry)
        assert await upkeep.expire_events(almost) == 0
        assert await upkeep.expire_events(later) == 1
        remaining = [item["metadata"]["name"] for item in (await client.list(EVENTS, "default")).items]
        assert remaining == ["repeated"]
        assert await upkeep.expire_events(almost + EVENT_TTL + timedelta(seconds=1)) == 1


@pytest.mark.point(59)
@pytest.mark.timeout(300)
def test_an_event_expires_on_a_real_server_too(tmp_path: Path) -> None:
    if assets() is None:
        pytest.skip(MISSING)
    if not FULL:
        pytest.skip("etcd takes its time to let go of what is to live for a second; tried with full effort")
    with Kubernetes(tmp_path, flags=("--event-ttl", "1s")) as server:
        events = path("events", namespace="default")
        assert server.admin.post(events, event("old")).status == 201
        eventually(lambda: server.admin.get(f"{events}/old").status == 404, "the end of the event", 200)
