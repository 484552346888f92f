"""The expected number of pods of a budget comes from the caches for the kinds that the plane itself controls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.controllers.workload.histories import workload
from tests.controllers.workload.runner import KINDS, namespace
from tests.support.waiting import first_answer

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import POD_DISRUPTION_BUDGETS
from torchyard.controllers.workload.disruption import DisruptionController
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

_RESOURCES = {(ref.api_version, kind): ref for kind, ref in KINDS.items()}


async def test_a_budget_of_built_in_workloads_needs_no_request_for_their_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    get = Client.get

    async def record(self: Client, ref: GroupVersionResource, name: str, *args: str, subresource: str = "") -> object:
        if self is counted:
            reads.append(f"{ref.plural}/{name}/{subresource}")
        return await get(self, ref, name, *args, subresource=subresource)

    settings = PlaneSettings(state=tmp_path / "state", port=0, node=False, controllers="*,-disruption-controller")
    async with Plane(settings) as plane:
        client, counted = plane.client("test"), plane.client("counted")
        monkeypatch.setattr(Client, "get", record)
        informers = InformerFactory(counted)
        controller = DisruptionController(counted, informers, resource=lambda *of: _RESOURCES[of])
        tasks = [asyncio.create_task(part) for part in (informers.run(), controller.run())]
        await namespace(client, "budgets")
        kinds = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
        for kind in kinds:
            await client.create(KINDS[kind], workload(kind, name=kind.lower(), replicas=1)[1], "budgets")
        spec = {"selector": {}, "maxUnavailable": 1}
        await client.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "budgets")

        async def expected() -> bool:
            status = (await client.get(POD_DISRUPTION_BUDGETS, "b", "budgets")).get("status") or {}
            return bool(status.get("expectedPods") == len(kinds))

        await first_answer(expected, "every workload counted", seconds=60.0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert reads == []
