"""A namespace of a plane, and of a real cluster with its own controllers: every test holds on both."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support import kubernetes as real
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import first_answer

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.controllers.scheduler import Scheduler
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.kubeconfig import load
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

T = TypeVar("T")

PATIENCE = 120.0
_numbers = itertools.count()


class Cluster:
    """One namespace of a cluster with running controllers."""

    def __init__(
        self, client: Client, namespace: str, *, server: Server | None = None, state: Path | None = None
    ) -> None:
        self.client, self.namespace = client, namespace
        self.server = server  # the real one, or None for ours
        self.state = state
        self.patience = PATIENCE

    async def create(self, ref: GroupVersionResource, obj: Object) -> Object:
        return await self.client.create(ref, obj, self.namespace if ref.namespaced else "")

    async def get(self, ref: GroupVersionResource, name: str) -> Object:
        return await self.client.get(ref, name, self.namespace if ref.namespaced else "")

    async def find(self, ref: GroupVersionResource, name: str) -> Object | None:
        return await self.client.find(ref, name, self.namespace if ref.namespaced else "")

    async def patch(self, ref: GroupVersionResource, name: str, patch: Object, *, subresource: str = "") -> Object:
        namespace = self.namespace if ref.namespaced else ""
        return await self.client.patch(ref, name, patch, namespace, subresource=subresource)

    async def delete(self, ref: GroupVersionResource, name: str, *, grace: int | None = None) -> None:
        await self.client.delete(ref, name, self.namespace if ref.namespaced else "", grace=grace)

    async def until(self, probe: Callable[[], Awaitable[T | None]], *, why: str = "it") -> T:
        """The first true result of an async function."""
        return await first_answer(probe, why, seconds=self.patience, pause=0.05)

    async def becomes(self, ref: GroupVersionResource, name: str, holds: Callable[[Object], object]) -> Object:
        """Wait until an object exists and a condition holds for it; a failure shows the object."""
        seen: list[Object | None] = [None]

        async def look() -> Object | None:
            seen[0] = await self.find(ref, name)
            return seen[0] if seen[0] is not None and holds(seen[0]) else None

        try:
            return await self.until(look)
        except AssertionError as error:
            raise AssertionError(f"{ref.plural} {name} is {seen[0]}") from error

    async def gone(self, ref: GroupVersionResource, name: str) -> None:
        async def missing() -> bool:
            return await self.find(ref, name) is None

        await self.until(missing, why=f"{ref.plural} {name} going")

    async def event(self, name: str, reason: str, *, part: str = "", namespace: str = "") -> Object:
        """Wait for an event about an object, by reason and a part of its message."""
        seen: list[tuple[str, str]] = []

        async def look() -> Object | None:
            events = (await self.client.list(EVENTS, namespace or self.namespace)).items
            about = [item for item in events if item["involvedObject"].get("name") == name]
            seen[:] = [(item["reason"], item["message"]) for item in about]
            return next((item for item in about if item["reason"] == reason and part in item["message"]), None)

        try:
            return await self.until(look)
        except AssertionError as error:
            raise AssertionError(f"no event {reason} with {part!r} about {name}, only {seen}") from error

    async def pod(self, name: str, *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:
        """A pod that no kubelet runs, on a node that may not exist."""
        container = {"name": "c", "image": "busybox", **spec.pop("container", {})}
        wanted = {"containers": [container], "automountServiceAccountToken": False, **spec}
        if node:
            wanted["nodeName"] = node
        return await self.create(PODS, {"metadata": {"name": name, "labels": labels or {}}, "spec": wanted})

    async def move(self, name: str, phase: str, *, address: str = "", ready: bool = True) -> None:
        """Report a pod's phase as a kubelet would."""
        conditions = [{"type": "Ready", "status": str(ready)}]
        status: Object = {"phase": phase, "conditions": conditions}
        if address:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        await self.patch(PODS, name, {"status": status}, subresource="status")

    async def node(self, name: str, *, ready: bool = True) -> Object:
        """A node that reports to be ready, without a kubelet."""
        labels = {"kubernetes.io/hostname": name}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        room = {"cpu": "8", "memory": "8Gi", "pods": "100"}
        condition = {"type": "Ready", "status": str(ready), "reason": "KubeletReady", "message": "well"}
        status = {"capacity": room, "allocatable": room, "conditions": [condition]}
        await self.client.patch(NODES, name, {"status": status}, subresource="status")
        # A real cluster taints a new node until its controller has seen that it is ready.
        return await self.becomes(NODES, name, lambda node: not node["spec"].get("taints"))


async def _namespace(client: Client) -> str:
    name = f"place-{next(_numbers)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    while await client.find(SERVICE_ACCOUNTS, "default", name) is None:
        await asyncio.sleep(0.02)
    return name


async def _embedded(directory: Path) -> AsyncIterator[Cluster]:
    async with Plane(PlaneSettings(state=directory / "state", port=0, node_name="here")) as plane:
        client = plane.client("test")
        # Normally it comes with a node; the nodes of these tests are only objects.
        informers = InformerFactory(client)
        scheduler = Scheduler(client, informers)
        tasks = [asyncio.create_task(work) for work in (scheduler.run(), informers.run())]
        try:
            yield Cluster(client, await _namespace(client), state=directory / "state")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.fixture(scope="session")
def kube_full(kubernetes_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real kube-apiserver with all its controllers and its scheduler, one per test worker."""
    missing = [name for name in ("kube-controller-manager", "kube-scheduler") if not real.has(name)]
    if missing:
        pytest.skip(f"this Kubernetes has no {', '.join(missing)}")
    # Shorter periods, so that tests need not wait for its timers.
    often = ("--pvclaimbinder-sync-period=2s",)
    directory = tmp_path_factory.mktemp("kube-full")
    with Kubernetes(directory, controllers="*", scheduler=True, manager_flags=often) as server:
        yield server


async def _real(server: Server) -> AsyncIterator[Cluster]:
    client = Client(HttpTransport(load(server.kubeconfig), user_agent="test"), manager="test")
    try:
        yield Cluster(client, await _namespace(client), server=server)
    finally:
        await client.close()
        await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    clusters = _embedded(tmp_path) if request.param == "embedded" else _real(request.getfixturevalue("kube_full"))
    async for cluster in clusters:
        yield cluster
