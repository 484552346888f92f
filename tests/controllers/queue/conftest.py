"""A plane with queues; the tests take the part of the kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import queues
from tests.support.waiting import first_answer

from torchyard.api.conditions import find
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.crd import definitions
from torchyard.controllers.queue.gvr import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    WORKLOADS,
)
from torchyard.controllers.queue.stores import QueueStore
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

_DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
_KINDS = {
    "ResourceFlavor": FLAVORS,
    "ClusterQueue": CLUSTER_QUEUES,
    "LocalQueue": LOCAL_QUEUES,
    "WorkloadPriorityClass": PRIORITY_CLASSES,
    "Workload": WORKLOADS,
}


class Cluster:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def create(self, kind: str, obj: Object) -> Object:
        return await self.client.create(_KINDS[kind], {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})

    async def with_queue(self, *, flavor: Object | None = None, **spec: Any) -> None:
        """Create a LocalQueue `q` and its ClusterQueue with two cpus, unless `spec` says otherwise."""
        await self.create("ResourceFlavor", flavor or queues.flavor())
        await self.create("ClusterQueue", queues.queue("team", **{"cpu": 2, **spec}))
        await self.create("LocalQueue", queues.local())
        await self.create("WorkloadPriorityClass", {"metadata": {"name": "high"}, "value": 100})

    async def job(self, name: str, *, cpu: str | int = 1, labels: Object | None = None, **spec: Any) -> Object:
        container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
        annotations = spec.pop("annotations", {})
        pod = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "q", **(labels or {})},
            "annotations": annotations,
        }
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {**spec, "template": {"spec": pod}},
        }
        return await self.client.create(JOBS, body)

    async def workload(self, job: str) -> Object | None:
        workloads = (await self.client.list(WORKLOADS, "default")).items
        return next((obj for obj in workloads if obj["metadata"]["ownerReferences"][0]["name"] == job), None)

    async def until(self, probe: Callable[[], Awaitable[Any]], description: str = "it") -> Any:
        return await first_answer(probe, description)

    async def condition(self, job: str, type: str, status: str = "True", reason: str = "") -> Object:
        """Wait for a condition of a job's workload, and return it."""

        async def reached() -> Object | None:
            workload = await self.workload(job)
            condition = find(((workload or {}).get("status") or {}).get("conditions") or (), type)
            if condition is None or condition["status"] != status or (reason and condition["reason"] != reason):
                return None
            return condition

        condition: Object = await self.until(reached, f"{type}={status} {reason} of {job}")
        return condition

    async def running(self, job: str, *, is_running: bool = True, gvr: GroupVersionResource = JOBS) -> Object:
        async def reached() -> Object | None:
            obj = await self.client.get(gvr, job, "default")
            spec = obj["spec"].get("runPolicy", obj["spec"])
            return obj if bool(spec.get("suspend")) is not is_running else None

        obj: Object = await self.until(reached, f"{job} {'starting' if is_running else 'stopping'}")
        return obj

    async def set_pod_phase(self, job: str, phase: str, count: int = 1) -> None:
        """Report a phase for some of a job's pods, as a kubelet would."""

        async def alive_pods() -> list[Object] | None:
            pods = (await self.client.list(PODS, "default", labels=f"batch.kubernetes.io/job-name={job}")).items
            alive = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
            return alive if len(alive) >= count else None

        pods = await self.until(alive_pods, f"pods of {job}")
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))[:count]:
            status = {"phase": phase, "conditions": ready}
            await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, "default", subresource="status")

    async def events(self, *reasons: str) -> list[Object]:
        async def recorded() -> list[Object] | None:
            items = (await self.client.list(EVENTS, "default")).items
            return items if set(reasons) <= {event["reason"] for event in items} else None

        events: list[Object] = await self.until(recorded, f"events {reasons}")
        return events


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0)) as plane:
        yield plane


@pytest.fixture
async def cluster(plane: Plane) -> Cluster:
    return Cluster(plane.client("test"))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server with a queue and a workload, but without queue controllers."""
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="namespace-controller")) as plane:
        client = plane.client("test")
        for definition in definitions():
            await client.create(_DEFINITIONS, definition)
        for gvr in (FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, CHECKS, WORKLOADS):
            await _wait_until_served(client, gvr)
        objects = (
            (FLAVORS, "ResourceFlavor", queues.flavor()),
            (CLUSTER_QUEUES, "ClusterQueue", queues.queue()),
            (LOCAL_QUEUES, "LocalQueue", queues.local()),
        )
        for gvr, kind, obj in objects:
            await client.create(gvr, {"apiVersion": names.API_VERSION, "kind": kind, **obj})
        workload = queues.workload("one")
        workload["metadata"] = {"namespace": "default", "name": "one"}
        await client.create(WORKLOADS, {"apiVersion": names.API_VERSION, "kind": "Workload", **workload})
        yield client


async def _wait_until_served(client: Client, gvr: GroupVersionResource) -> None:
    async def is_served() -> bool:
        try:
            await client.list(gvr)
        except StatusError:
            return False
        return True

    await first_answer(is_served, gvr.plural)


@pytest.fixture
async def store(client: Client) -> AsyncIterator[QueueStore]:
    informers = InformerFactory(client)
    store = QueueStore(client, informers)
    running = asyncio.create_task(informers.run())
    await informers.synced()
    yield store
    running.cancel()
