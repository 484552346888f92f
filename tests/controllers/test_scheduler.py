"""The scheduler in a plane: how many pods it tries, and that none of them waits longer than it has to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scheduling import create_node, create_starting_node, make_ready, running_scheduler
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.controllers import scheduler as scheduler_module
from torchyard.core.scheduling.schedule import schedule_pod
from torchyard.kube.client import Client
from torchyard.kube.local import LocalTransport
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)


def _settings(tmp_path: Path) -> PlaneSettings:
    return PlaneSettings(state=tmp_path / "state", port=0, controllers="serviceaccount-controller", node=False)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(_settings(tmp_path)) as plane, running_scheduler(plane):
        await first_answer(lambda: plane.client("test").find(SERVICE_ACCOUNTS, "default", "default"))
        yield plane


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pods that the scheduler tries."""
    names: list[str] = []
    original = schedule_pod

    def count(pod: Object, *arguments: Any, **options: Any) -> Any:
        names.append(pod["metadata"]["name"])
        return original(pod, *arguments, **options)

    monkeypatch.setattr(scheduler_module, "schedule_pod", count)
    return names


def _pod(name: str, cpu: str = "1", **spec: object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


async def _create(client: Client, *pods: Object) -> None:
    for pod in pods:
        await client.create(PODS, pod, "default")


def _on_node(client: Client, name: str) -> Callable[[], Any]:
    async def query() -> str:
        return str((await client.get(PODS, name, "default"))["spec"].get("nodeName") or "")

    return query


async def _pending_messages(client: Client) -> dict[str, str]:
    pods = (await client.list(PODS, "default")).items
    return {
        pod["metadata"]["name"]: condition["message"]
        for pod in pods
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }


async def test_the_number_of_attempts_does_not_grow_with_the_number_of_waiting_pods(
    plane: Plane, attempts: list[str]
) -> None:
    client = plane.client("test")
    await create_node(client, "machine", cpu="2")
    await _create(client, *(_pod(f"large-{number:03}", "8") for number in range(150)))

    async def all_reported() -> bool:
        return len(await _pending_messages(client)) == 150

    await first_answer(all_reported)
    assert len(attempts) < 20, "equal pods share one answer"
    attempts.clear()
    await _create(client, *(_pod(f"small-{number}") for number in range(2)))
    for number in range(2):
        await first_answer(_on_node(client, f"small-{number}"))
    await client.delete(PODS, "small-0", "default", grace=0)
    await _create(client, _pod("next"))
    await first_answer(_on_node(client, "next"))
    assert not [name for name in attempts if name.startswith("large")], "nothing happened that could help them"


async def test_a_pod_that_ends_makes_room_for_the_first_that_waits(plane: Plane) -> None:
    client = plane.client("test")
    await create_node(client, "machine", cpu="1")
    await _create(client, _pod("running"))
    await first_answer(_on_node(client, "running"))
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    await client.create(PRIORITY_CLASSES, urgent)
    await _create(client, _pod("second"), _pod("third"), _pod("urgent", priorityClassName="urgent"))

    async def all_pending() -> bool:
        return set(await _pending_messages(client)) == {"second", "third", "urgent"}

    await first_answer(all_pending)
    await client.patch(PODS, "running", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    assert await first_answer(_on_node(client, "urgent")) == "machine"
    assert set(await _pending_messages(client)) == {"second", "third"}


async def test_pods_of_another_scheduler_are_left_alone_but_count_on_their_node(
    plane: Plane, attempts: list[str]
) -> None:
    client = plane.client("test")
    await create_node(client, "machine", cpu="4")
    await _create(client, *(_pod(f"other-{number}", schedulerName="another") for number in range(5)))
    await _create(client, _pod("placed", "3", schedulerName="another", nodeName="machine"), _pod("mine", "2"))

    async def pending() -> dict[str, str]:
        return await _pending_messages(client)

    assert set(await first_answer(pending)) == {"mine"}
    assert set(attempts) == {"mine"}


async def test_a_binding_that_fails_is_tried_again_and_keeps_no_room(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, failures = plane.client("test"), 0
    original = LocalTransport.request

    async def fail_twice(self: LocalTransport, method: str, path: str, **options: Any) -> Any:
        nonlocal failures
        if "/binding" in path and failures < 2:
            failures += 1
            raise StatusError(500, "InternalError", "no") if failures == 1 else KeyError("missing")
        return await original(self, method, path, **options)

    monkeypatch.setattr(LocalTransport, "request", fail_twice)
    monkeypatch.setattr(scheduler_module, "_MIN_RETRY_SECONDS", 0.01)
    await create_node(client, "machine", cpu="1")
    await _create(client, _pod("only"))
    assert await first_answer(_on_node(client, "only")) == "machine"
    assert failures == 2


async def test_a_restarted_scheduler_repeats_no_event(tmp_path: Path) -> None:
    async with Plane(_settings(tmp_path)) as plane:
        client = plane.client("test")
        await first_answer(lambda: client.find(SERVICE_ACCOUNTS, "default", "default"))
        await create_node(client, "machine", cpu="1")
        await _create(client, _pod("large", "8"))

        async def event() -> Object | None:
            events = (await client.list(EVENTS, "default", fields="reason=FailedScheduling")).items
            return events[0] if events else None

        async with running_scheduler(plane):
            await first_answer(event)
        async with running_scheduler(plane):
            await _create(client, _pod("fits"))
            await first_answer(_on_node(client, "fits"))
        assert ((await event()) or {}).get("count") == 1


async def test_pods_created_before_the_first_node_is_ready_are_not_unschedulable(tmp_path: Path) -> None:
    """A plane answers before its node is ready. A pod that is created meanwhile only waits."""
    async with Plane(_settings(tmp_path)) as plane:
        client = plane.client("test")
        await first_answer(lambda: client.find(SERVICE_ACCOUNTS, "default", "default"))
        await create_starting_node(client, "machine")
        await _create(client, _pod("early"))
        async with running_scheduler(plane):
            async with asyncio.timeout(30):
                await plane.synced()
            for _ in range(20):  # turns of the scheduler, which would report at the first
                await asyncio.sleep(0.01)
            assert await _pending_messages(client) == {}
            await make_ready(client, "machine")
            await first_answer(_on_node(client, "early"))
        events = (await client.list(EVENTS, "default")).items
        assert [event for event in events if event["reason"] == "FailedScheduling"] == []
