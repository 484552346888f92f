"""No object keeps the controllers of a plane busy, or lets one of them stop the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from tests.core.pytorchjob.test_decide import decision_for
from tests.security.plane_support import PlaneClient, plane_client
from tests.support.pytorchjobs import job

from torchyard.api.gvr import EVENTS
from torchyard.api.objects import Object
from torchyard.core.pytorchjob.decide import MAX_CREATED_PER_PASS
from torchyard.kube.event_recorder import EventRecorder

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SECONDS = 120


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[PlaneClient]:
    async with plane_client(tmp_path) as running:
        yield running


async def create(client: PlaneClient, path: str, obj: Object) -> Object:
    response = await client.send("POST", path, orjson.dumps(obj))
    assert response.status == 201, response.body
    assert isinstance(response.body, bytes)
    created: Object = orjson.loads(response.body)
    return created


async def test_twenty_thousand_owners_are_looked_up_while_others_are_served(client: PlaneClient) -> None:
    owner = await create(client, CONFIG_MAPS, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    missing = [{**reference, "name": f"o{number}", "uid": f"u{number}"} for number in range(5_000)]
    dependent = {"metadata": {"name": "dependent", "ownerReferences": [reference, *missing]}}
    await create(client, CONFIG_MAPS, dependent)
    answered = 0
    async with asyncio.timeout(SECONDS):
        while True:
            response = await client.send("GET", f"{CONFIG_MAPS}/dependent")
            assert isinstance(response.body, bytes)
            answered += 1
            if orjson.loads(response.body)["metadata"]["ownerReferences"] == [reference]:
                break
            await asyncio.sleep(0.005)
    assert answered > 10


def test_a_pytorchjob_with_two_billion_replicas_creates_some_at_a_time() -> None:
    decision = decision_for(job(worker=2**31 - 1))
    assert len(decision.create) == MAX_CREATED_PER_PASS
    assert decision.wake_after == 0


async def test_events_of_a_pending_claim_are_recorded_when_the_reason_changes(client: PlaneClient) -> None:
    """Other changes make the controller look at the claim again, and record nothing."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    await create(client, CLAIMS, {"metadata": {"name": "pending"}, "spec": spec})
    reason = "ProvisioningFailed"
    async with asyncio.timeout(SECONDS):
        while not (events := [event for event in await stored_events(client) if event["reason"] == reason]):
            await asyncio.sleep(0.05)
    for number in range(20):
        volume = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
        await create(
            client,
            "/api/v1/persistentvolumes",
            {"metadata": {"name": f"v{number}"}, "spec": {**volume, "storageClassName": "other"}},
        )
    await asyncio.sleep(0.5)
    events = [event for event in await stored_events(client) if event["reason"] == reason]
    assert [event["count"] for event in events] == [1]


async def stored_events(client: PlaneClient) -> list[Object]:
    return (await client.plane.client("test").list(EVENTS, "default")).items


async def test_a_repeated_event_is_written_25_times_and_then_once_in_five_minutes(client: PlaneClient) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    recorder = EventRecorder(client.plane.client("test"), "storm", clock=lambda: now)
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    task = asyncio.create_task(recorder.run())

    async def record(times: int) -> int:
        for _ in range(times):
            recorder.event(obj, "Warning", "Storm", "again")
        async with asyncio.timeout(SECONDS):
            while recorder.pending:
                await asyncio.sleep(0.01)
        (event,) = [event for event in await stored_events(client) if event["reason"] == "Storm"]
        count: int = event["count"]
        return count

    assert await record(100) == 25
    now += timedelta(minutes=5)
    assert await record(10) == 26
    now += timedelta(minutes=2)
    assert await record(10) == 26
    task.cancel()
