"""A part of the plane that fails does not end the plane, and its failure is visible."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support import queues
from tests.support.process import free_port
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, EVENTS
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.lifecycle import owned_objects
from torchyard.apiserver.lifecycle.bootstrap import ensure_objects
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.store.log import Log, Row
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.controllers.queue import queue_status
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, LOCAL_QUEUES
from torchyard.controllers.queue.scheduler import SchedulerController
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

WEBHOOKS = {
    f"{kind}WebhookConfiguration": GroupVersionResource(
        "admissionregistration.k8s.io", "v1", f"{kind.lower()}webhookconfigurations", namespaced=False
    )
    for kind in ("Mutating", "Validating")
}


def _settings(tmp_path: Path, controllers: str) -> PlaneSettings:
    return PlaneSettings(state=tmp_path / "state", port=0, controllers=controllers, node=False)


def _typed(kind: str, obj: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj}


async def _raw(plane: Plane, path: str) -> tuple[int, str]:
    response = await plane.client("test")._transport.request("GET", path)
    return response.status, response.body.decode()


async def test_a_failing_part_is_restarted_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = SchedulerController._run_cycles, 0

    async def fails_at_first(self: SchedulerController) -> None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise KeyError("missing")
        await original(self)

    monkeypatch.setattr(SchedulerController, "_run_cycles", fails_at_first)
    async with Plane(_settings(tmp_path, "kueue,namespace-controller")) as plane:
        client = plane.client("test")
        await first_answer(lambda: _count(plane, "kueue/scheduler/cycles", 2))
        assert "missing" in (await first_answer(lambda: _event(client)))["message"]
        _, metrics = await _raw(plane, "/metrics")
        assert 'torchyard_part_failures_total{part="kueue/scheduler/cycles"} 2' in metrics
        await first_answer(lambda: _is_ready(plane))
        # The queue works again.
        await client.create(CLUSTER_QUEUES, _typed("ClusterQueue", queues.queue("team")))
        await first_answer(lambda: _has_status(client))


async def _count(plane: Plane, part: str, at_least: int) -> bool:
    return plane.supervisor.failures.get(part, 0) >= at_least


async def _event(client: Client) -> Object | None:
    events = (await client.list(EVENTS, "default", fields="reason=PartFailed")).items
    return events[0] if events else None


async def _is_ready(plane: Plane) -> bool:
    return await _raw(plane, "/readyz") == (200, "ok")


async def _is_ready_with(plane: Plane, file: Path) -> bool:
    return file.is_file() and await _is_ready(plane)


async def _has_status(client: Client) -> bool:
    return bool((await client.get(CLUSTER_QUEUES, "team")).get("status"))


async def test_readyz_names_a_part_that_is_down(tmp_path: Path) -> None:
    async with Plane(_settings(tmp_path, "-*")) as plane:
        plane.supervisor._min_delay = 60

        async def fails() -> None:
            raise ValueError("bad value")

        plane._start_part("extra", fails)
        await first_answer(lambda: _count(plane, "extra", 1))
        await asyncio.sleep(0)
        status, text = await _raw(plane, "/readyz")
        assert status == 500
        assert "[-]parts failed: extra: ValueError: bad value" in text


async def test_local_queues_deleted_while_statuses_are_written_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_status, "_DELAY", 0.0)
    async with Plane(_settings(tmp_path, "kueue,namespace-controller")) as plane:
        client = plane.client("test")
        await client.create(CLUSTER_QUEUES, _typed("ClusterQueue", queues.queue("team")))
        names = [f"q-{number}" for number in range(200)]

        async def create_and_delete(name: str) -> None:
            await client.create(LOCAL_QUEUES, _typed("LocalQueue", queues.local(name)), "default")
            await asyncio.sleep(0)
            await client.delete(LOCAL_QUEUES, name, "default")

        await asyncio.gather(*(create_and_delete(name) for name in names))
        await client.create(LOCAL_QUEUES, _typed("LocalQueue", queues.local("last")), "default")

        async def status() -> Object | None:
            return (await client.get(LOCAL_QUEUES, "last", "default")).get("status")

        assert (await first_answer(status))["conditions"]
        assert plane.supervisor.failures == {}


@pytest.mark.parametrize("is_locked", [False, True], ids=["", "after another program had locked the database"])
async def test_a_failure_of_the_store_ends_the_plane(
    is_locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Plane(_settings(tmp_path, "-*")) as plane:
        failed = asyncio.ensure_future(plane.failed())

        def broken(*_: object) -> None:
            raise MemoryError("no memory")

        other = sqlite3.connect(plane.settings.database, check_same_thread=False)
        wait_for_lock = Log.append_locked

        def unlock_and_wait(log: Log, rows: Iterable[Row]) -> None:
            other.rollback()
            wait_for_lock(log, rows)

        with monkeypatch.context() as patched, contextlib.closing(other):
            patched.setattr(Store, "_publish", broken)
            patched.setattr(Log, "append_locked", unlock_and_wait)
            if is_locked:
                other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Exception, match="no memory"):
                await asyncio.wait_for(plane.client("test").create(CONFIG_MAPS, _config_map(), "default"), 20)
            assert not other.in_transaction
        with pytest.raises(Exception, match="the store failed: MemoryError: no memory"):
            await asyncio.wait_for(failed, 10)


def _config_map(name: str = "a") -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def test_a_listener_that_raises_does_not_fail_the_write(tmp_path: Path) -> None:
    async with Plane(_settings(tmp_path, "namespace-controller")) as plane:

        def broken(event: StoreEvent) -> None:
            if event.record.key.startswith("/configmaps"):
                raise KeyError("missing")

        plane.registry.store.listen("", broken)
        client = plane.client("test")
        created = await client.create(CONFIG_MAPS, _config_map(), "default")
        assert (await client.get(CONFIG_MAPS, "a", "default"))["metadata"]["uid"] == created["metadata"]["uid"]


async def test_the_parts_and_their_failures_are_reported(tmp_path: Path) -> None:
    async with Plane(_settings(tmp_path, "namespace-controller")) as plane:
        plane.supervisor._min_delay = 60

        async def fails() -> None:
            raise ValueError("bad value")

        plane._start_part("extra", fails)
        await first_answer(lambda: _count(plane, "extra", 1))
        status, text = await _raw(plane, "/debug/parts")
        parts = {part["part"]: part for part in json.loads(text)["parts"]}
        assert status == 200
        assert (
            parts["extra"].items()
            >= {"state": "Restarting", "failures": 1, "lastError": "ValueError: bad value"}.items()
        )
        assert parts["namespace-controller"].items() >= {"state": "Running", "failures": 0, "lastError": ""}.items()
        assert parts["namespace-controller"]["since"].endswith("Z")


async def test_an_error_in_the_check_of_own_objects_does_not_end_a_plane_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, original, calls = _settings(tmp_path, "pytorchjob"), ensure_objects, 0
    async with Plane(settings):
        pass

    async def fails_at_first(registry: Registry, user: User, objects: Iterable[Object]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StatusError(500, "InternalError", "no")
        await original(registry, user, objects)

    async def is_repeated() -> bool:
        return calls == 2

    monkeypatch.setattr(owned_objects, "ensure_objects", fails_at_first)
    async with Plane(settings) as plane:
        await first_answer(lambda: _count(plane, "owned-objects", 1))
        await first_answer(is_repeated)
        await first_answer(lambda: _is_ready(plane))


async def test_a_plane_starts_before_its_webhooks_do(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "pytorchjob")
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    webhook = {
        "name": "down.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{free_port()}/"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    async with Plane(settings) as plane:
        for kind, ref in WEBHOOKS.items():
            configuration = {"apiVersion": ref.api_version, "kind": kind, "metadata": {"name": "all"}}
            await plane.client("test").create(ref, {**configuration, "webhooks": [webhook]})
    settings.owned_digest.unlink()  # as after an update of this program
    async with Plane(settings) as plane:
        assert await _is_ready(plane)
        with pytest.raises(StatusError, match="failed calling webhook"):
            await plane.client("test").create(CONFIG_MAPS, _config_map(), "default")


async def test_owners_that_were_deleted_before_the_start_are_known_to_the_garbage_collector(tmp_path: Path) -> None:
    """Foreground deletion too: all dependents are known before the owner is looked at."""
    names = [f"dependent-{number:03}" for number in range(450)]
    async with Plane(_settings(tmp_path, "-*")) as plane:
        client = plane.client("test")
        uids = [
            (await client.create(CONFIG_MAPS, _config_map(name), "default"))["metadata"]["uid"] for name in ("a", "b")
        ]
        for owner, uid, dependents in (("a", uids[0], names[::2]), ("b", uids[1], names[1::2])):
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": True}
            for name in dependents:
                dependent = _config_map(name)
                dependent["metadata"]["ownerReferences"] = [reference]
                await client.create(CONFIG_MAPS, dependent, "default")
        await client.delete(CONFIG_MAPS, "a", "default", propagation="Background")
        await client.delete(CONFIG_MAPS, "b", "default", propagation="Foreground")
        assert await client.find(CONFIG_MAPS, "b", "default"), "it waits for its dependents"
    async with Plane(_settings(tmp_path, "garbage-collector-controller")) as plane:
        client = plane.client("test")

        async def is_empty() -> bool:
            left = {obj["metadata"]["name"] for obj in (await client.list(CONFIG_MAPS, "default")).items}
            assert "b" in left or not left & set(names[1::2]), "the owner goes last"
            return not left & {"b", *names}

        await first_answer(is_empty)


async def test_a_history_that_cannot_be_read_is_a_failure_of_its_part(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "job-controller")
    file = settings.history / "runs.db"
    file.mkdir(parents=True)
    async with Plane(settings) as plane:
        await first_answer(lambda: _count(plane, "job-history", 1))
        file.rmdir()
        await first_answer(lambda: _is_ready_with(plane, file))
