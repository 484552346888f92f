"""What a change costs does not grow with the number of objects that it does not concern."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support import storage
from tests.support.scheduling import create_node, running_scheduler
from tests.support.waiting import first_answer

from torchyard.api.gvr import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from torchyard.api.objects import Object
from torchyard.apiserver.lifecycle import compactor
from torchyard.apiserver.verbs import list as list_verb
from torchyard.controllers import job
from torchyard.controllers.pod_eviction import PodGarbageCollector, TaintEvictionController
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.controllers.volume_binder import VolumeBinder
from torchyard.core.job import adoption
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

SECONDS = 60
MANY = 60
# Read as a whole: few, whatever the plane does.
_FEW = {"nodes", "storageclasses", "clusterroles"}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="*", node=False)) as plane:
        await first_answer(lambda: plane.client("test").find(SERVICE_ACCOUNTS, "default", "default"), seconds=SECONDS)
        yield plane


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What controllers read of the caches at once: the resource, and how many objects."""
    recorded: list[tuple[str, int]] = []
    read_all, read_index = Informer.all, Informer.by

    def record_all(self: Informer) -> list[Object]:
        objects = read_all(self)
        recorded.append((self.ref.plural, len(objects)))
        return objects

    def record_index(self: Informer, index: str, value: str) -> list[Object]:
        objects = read_index(self, index, value)
        recorded.append((f"{self.ref.plural} by {index}", len(objects)))
        return objects

    monkeypatch.setattr(Informer, "all", record_all)
    monkeypatch.setattr(Informer, "by", record_index)
    return recorded


def _pod(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000"}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def _job(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


def _pytorchjob(name: str) -> Object:
    master = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": master}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def _workload(kind: str, name: str) -> Object:
    """One that has a pod, or none on the nodes of this test."""
    own = {"app": f"{kind.lower()}-{name}"}
    containers = [{"name": "c", "image": "i"}]
    pod = {"containers": containers, "schedulerName": "another", "nodeSelector": {"no": "node"}}
    template = {"metadata": {"labels": own}, "spec": pod}
    is_core = kind == "ReplicationController"
    spec: Object = {"selector": own if is_core else {"matchLabels": own}, "template": template}
    metadata = {"name": f"{kind.lower()}-{name}", "namespace": "default"}
    return {"apiVersion": "v1" if is_core else "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _budget(name: str) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"deployment-{name}"}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


_WORKLOADS = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
}


def _service(name: str) -> Object:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}], "clusterIP": "None"}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


async def _create_one_of_each(client: Client, name: str) -> None:
    await client.create(PODS, _pod(name), "default")
    await client.create(PODS, _pod(f"{name}-elsewhere", schedulerName="another"), "default")
    await client.create(JOBS, _job(name), "default")
    await client.create(PYTORCHJOBS, _pytorchjob(name), "default")
    await client.create(SERVICES, _service(name), "default")
    await client.create(POD_DISRUPTION_BUDGETS, _budget(name), "default")
    for kind, ref in _WORKLOADS.items():
        await client.create(ref, _workload(kind, name), "default")
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim(name, cls=f"missing-{name}"), "default")
    taken = {"namespace": "default", "name": f"other-{name}"}
    await client.create(PERSISTENT_VOLUMES, storage.volume(name, claimRef=taken))


async def _settle(plane: Plane) -> None:
    """Wait until nothing is written any more."""
    store, quiet = plane.registry.store, 0
    async with asyncio.timeout(SECONDS):
        while quiet < 5:
            revision = store.revision
            await asyncio.sleep(0.1)
            quiet = quiet + 1 if store.revision == revision else 0


async def test_a_change_reads_only_the_objects_that_it_concerns(plane: Plane, reads: list[tuple[str, int]]) -> None:
    client = plane.client("test")
    async with running_scheduler(plane):
        await create_node(client, "machine", cpu="4")
        for number in range(MANY):
            await _create_one_of_each(client, f"o{number}")
        await _settle(plane)
        reads.clear()
        await _create_one_of_each(client, "last")
        await _settle(plane)
        for ref in (PODS, JOBS, PYTORCHJOBS, SERVICES, PERSISTENT_VOLUME_CLAIMS):
            await client.delete(ref, "last", "default", grace=0)
        for kind, ref in _WORKLOADS.items():
            await client.delete(ref, f"{kind.lower()}-last", "default")
        await client.delete(PERSISTENT_VOLUMES, "last")
        await _settle(plane)
    large = {read for read in reads if read[1] >= MANY / 2 and read[0] not in _FEW}
    assert not large


async def test_a_pod_without_a_controller_is_compared_with_the_jobs_that_its_labels_name(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, compared = plane.client("test"), 0
    for number in range(MANY):
        await client.create(JOBS, _job(f"j{number}"), "default")
    await _settle(plane)
    original = adoption.selector

    def count(obj: Object) -> Any:
        nonlocal compared
        compared += 1
        return original(obj)

    monkeypatch.setattr(job, "selector", count)
    await client.create(PODS, _pod("alone", schedulerName="another"), "default")
    await _settle(plane)
    assert compared == 0


async def test_a_pending_claim_waits_for_a_change_and_gets_one_event(plane: Plane) -> None:
    client = plane.client("test")
    binder = VolumeBinder(client, InformerFactory(client))
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim("data", cls="missing"), "default")
    claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default")
    binder._claims._objects[("default", "data")] = claim
    for _ in range(3):
        await binder.claims._reconcile(("default", "data"))
    assert binder.recorder.queued == 1
    assert await binder.claims._reconcile(("default", "data")) is None  # not after a time


@pytest.mark.parametrize(("minutes", "events"), [(0, 1), (2, 0)])
async def test_after_a_restart_an_old_pending_claim_gets_no_event_until_the_reason_changes(
    plane: Plane, minutes: int, events: int
) -> None:
    client = plane.client("test")
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim("data", cls="missing"), "default")
    informers = InformerFactory(client)
    binder = VolumeBinder(client, informers, clock=lambda: plane.registry.clock() + timedelta(minutes=minutes))
    task = asyncio.create_task(informers.run())
    await informers.synced()
    await binder.claims._reconcile(("default", "data"))
    assert binder.recorder.queued == events
    await client.create(STORAGE_CLASSES, storage.storage_class("missing", provisioner="kubernetes.io/no-provisioner"))

    async def is_seen() -> bool:
        return binder._classes.get("", "missing") is not None

    await first_answer(is_seen, seconds=SECONDS)
    await binder.claims._reconcile(("default", "data"))
    assert binder.recorder.queued == events + 1
    task.cancel()


async def test_claims_of_a_class_are_looked_at_when_the_class_appears(plane: Plane) -> None:
    client = plane.client("test")
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim("data", cls="late"), "default")
    await _settle(plane)
    await client.create(STORAGE_CLASSES, storage.storage_class("late", provisioner="example.com/p"))

    async def provisioner() -> str:
        claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        return str(claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/storage-provisioner", ""))

    assert await first_answer(provisioner, seconds=SECONDS) == "example.com/p"


async def test_a_claim_that_names_a_volume_is_looked_at_when_another_claim_has_it(plane: Plane) -> None:
    client = plane.client("test")
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim("data", cls="manual", volumeName="v"), "default")
    await _settle(plane)
    taken = {"namespace": "default", "name": "another"}
    await client.create(PERSISTENT_VOLUMES, storage.volume("v", claimRef=taken))

    async def events() -> list[str]:
        return [event["reason"] for event in (await client.list(EVENTS, "default")).items]

    assert "FailedBinding" in await first_answer(events, seconds=SECONDS)


async def test_only_events_that_were_written_since_the_last_pass_are_read_for_their_expiry(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, read = plane.client("test"), 0
    for number in range(5):
        involved = {"kind": "Pod", "name": "p", "namespace": "default"}
        metadata = {"name": f"e{number}", "namespace": "default"}
        await client.create(EVENTS, {"metadata": metadata, "involvedObject": involved, "reason": "Started"})
    original = compactor._last_seen

    def count(*arguments: Any) -> Any:
        nonlocal read
        read += 1
        return original(*arguments)

    monkeypatch.setattr(compactor, "_last_seen", count)
    upkeep, now = compactor.Compactor(plane.registry), plane.registry.clock()
    await upkeep.expire_events(now)
    assert read >= 5
    read = 0
    await client.patch(EVENTS, "e0", {"count": 2}, "default")
    await upkeep.expire_events(now)
    assert read == 1
    assert await upkeep.expire_events(now + compactor.EVENT_TTL + timedelta(minutes=1)) >= 5
    assert await client.find(EVENTS, "e0", "default") is None


async def test_dependents_of_a_deleted_owner_are_collected_without_a_search(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, searches = plane.client("test"), 0
    owner = await client.create(SERVICES, _service("owner"), "default")
    reference = {"apiVersion": "v1", "kind": "Service", "name": "owner", "uid": owner["metadata"]["uid"]}
    dependent = _service("dependent")
    dependent["metadata"]["ownerReferences"] = [reference]
    await client.create(SERVICES, dependent, "default")
    original = list_verb.list_records

    async def count(registry: Any, ctx: Any) -> Any:
        nonlocal searches
        searches += "metadata.name=owner" in ctx.query.get("fieldSelector")
        return await original(registry, ctx)

    for module in _modules_with(original):
        monkeypatch.setattr(module, "list_records", count)
    await client.delete(SERVICES, "owner", "default", propagation="Background")

    async def is_gone() -> bool:
        return await client.find(SERVICES, "dependent", "default") is None

    assert await first_answer(is_gone, seconds=SECONDS)
    assert searches == 0


def _modules_with(function: Any) -> list[Any]:
    import sys

    return [module for module in list(sys.modules.values()) if getattr(module, "list_records", None) is function]


async def test_the_pod_garbage_collector_reads_no_pod_that_may_stay(plane: Plane, reads: list[tuple[str, int]]) -> None:
    client = plane.client("test")
    informers = InformerFactory(client)
    collector = PodGarbageCollector(client, informers, quarantine=0)
    for number in range(5):
        await client.create(PODS, _pod(f"p{number}", schedulerName="another"), "default")
    await client.create(PODS, _pod("lost", nodeName="gone"), "default")
    task = asyncio.create_task(informers.run())
    await informers.synced()
    reads.clear()
    await collector.collect()
    task.cancel()
    of_pods = {read for read in reads if read[0].startswith("pods")}
    assert of_pods <= {("pods by node", 1), ("pods by garbage", 0)}
    assert await client.find(PODS, "lost", "default") is None


async def test_a_pod_without_a_node_is_not_looked_at_for_its_taints(plane: Plane) -> None:
    client = plane.client("test")
    evictions = TaintEvictionController(client, InformerFactory(client))
    evictions._pod_changed("ADDED", _pod("waiting"), None)
    assert len(evictions.controller.queue) == 0
    evictions._pod_changed("MODIFIED", _pod("waiting", nodeName="machine"), _pod("waiting"))
    assert len(evictions.controller.queue) == 1
