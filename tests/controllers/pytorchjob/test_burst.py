"""Many jobs at once: every job gets its pods before the first status and event are written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import job

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NAMESPACES, PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import JOBS, PyTorchJobController
from torchyard.core.pytorchjob.view import PyTorchJobSettings
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.operator.install import install
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

JOB_COUNT = 6


class Noted(Client):
    """Records writes in order."""

    def __init__(self, client: Client) -> None:
        super().__init__(client._transport, manager="test")
        self.written: list[tuple[str, str]] = []

    async def create(self, ref: GroupVersionResource, obj: Object, namespace: str = "", **more: Any) -> Object:
        if ref is PODS:
            self.written.append(("pod", obj["metadata"]["name"]))
        return await super().create(ref, obj, namespace, **more)

    async def update(self, ref: GroupVersionResource, obj: Object, *, subresource: str = "") -> Object:
        if ref is JOBS:
            self.written.append(("status", obj["metadata"]["name"]))
        return await super().update(ref, obj, subresource=subresource)


async def test_pods_of_all_jobs_are_created_before_the_first_status(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)
    async with Plane(settings) as plane:
        client = Noted(plane.client("test"))
        await install(client, None, lambda _: None)
        await client.create(NAMESPACES, {"metadata": {"name": "burst"}})
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "burst")
        cluster = Cluster(client, "burst")
        for number in range(JOB_COUNT):
            await cluster.create(job(f"job-{number}", worker=None))
        informers = InformerFactory(client, namespace="burst")
        controller = PyTorchJobController(client, informers, PyTorchJobSettings(), workers=1)
        tasks = [asyncio.create_task(informers.run())]
        await informers.synced()
        tasks.append(asyncio.create_task(controller.run()))
        try:
            for number in range(JOB_COUNT):
                status = await cluster.conditions(("Created", "True"), name=f"job-{number}")
                pod = await cluster.pod(f"job-{number}-master-0")
                assert status["startTime"] <= pod["metadata"]["creationTimestamp"]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        kinds = [kind for kind, _ in client.written[: JOB_COUNT + 1]]
        # No other job is queued behind the last one, so its status is written first.
        assert kinds.count("pod") >= JOB_COUNT - 1
        assert len(client.written) == len(set(client.written)), "nothing is written twice"
