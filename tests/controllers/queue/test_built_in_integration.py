"""A cluster whose Kueue manages PyTorchJobs itself: what it does to a job, and what it reads from it.

The API server is real; the test takes the part of Kueue and the kubelet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from tests.controllers.queue.cluster_tasks import install_definitions, running
from tests.support.kubernetes import Server
from tests.support.pytorchjobs import job as pytorchjob
from tests.support.waiting import first_answer

from torchyard.api.conditions import has_true_condition
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.controllers.pytorchjob import PyTorchJobController
from torchyard.controllers.queue.gvr import PYTORCHJOBS
from torchyard.core.pytorchjob.view import PyTorchJobSettings
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.kubeconfig import load

pytestmark = pytest.mark.cluster


@pytest.fixture
async def real(kube: Server) -> AsyncIterator[Client]:
    client = Client(HttpTransport(load(kube.kubeconfig), user_agent="test"), manager="test")
    await install_definitions(client, definition_object())
    informers = InformerFactory(client)
    async with running(client, PyTorchJobController(client, informers, PyTorchJobSettings()), informers):
        yield client


class JobScenario:
    def __init__(self, client: Client) -> None:
        self.client, self.name = client, f"train-{token_hex(3)}"

    async def job(self) -> Object:
        return await self.client.get(PYTORCHJOBS, self.name, "default")

    async def patch(self, *, suspend: bool, selector: Object | None) -> None:
        """Start or stop the job in one patch with its templates, as Kueue does."""
        replicas = {kind: {"template": {"spec": {"nodeSelector": selector}}} for kind in ("Master", "Worker")}
        spec = {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": replicas}
        await self.client.patch(PYTORCHJOBS, self.name, {"spec": spec}, "default")

    async def pods(self, count: int, selector: Object | None = None) -> list[Object]:
        async def reached() -> bool:
            pods = await self._pods()
            return len(pods) == count and all(pod["spec"].get("nodeSelector") == selector for pod in pods)

        await first_answer(reached, f"{count} pods with {selector}")
        return await self._pods()

    async def _pods(self) -> list[Object]:
        labels = f"training.kubeflow.org/job-name={self.name}"
        return (await self.client.list(PODS, "default", labels=labels)).items

    async def set_phase(self, phase: str) -> None:
        for pod in await self._pods():
            state: Object = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
            status = {"name": "pytorch", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
            patch = {"status": {"phase": phase, "containerStatuses": [status]}}
            await self.client.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")

    async def wait_for_condition(self, type: str) -> None:
        async def reached() -> bool:
            return has_true_condition(await self.job(), type)

        await first_answer(reached, type)


async def test_pytorchjob_reports_what_kueue_reads(real: Client) -> None:
    scenario = JobScenario(real)
    body = pytorchjob(master=1, worker=2)
    body["spec"].setdefault("runPolicy", {})["suspend"] = True  # as Kueue's webhook does
    labels = {"kueue.x-k8s.io/queue-name": "theirs"}
    await real.create(
        PYTORCHJOBS, {**body, "metadata": {"name": scenario.name, "namespace": "default", "labels": labels}}
    )
    await scenario.wait_for_condition("Suspended")
    await scenario.pods(0)
    await scenario.patch(suspend=False, selector={"kind": "fast"})
    await scenario.pods(3, {"kind": "fast"})
    await scenario.set_phase("Running")
    await scenario.wait_for_condition("Running")
    await scenario.patch(suspend=True, selector=None)
    await scenario.pods(0)

    async def stopped() -> bool:
        status = (await scenario.job())["status"]
        active = sum((replica or {}).get("active") or 0 for replica in (status.get("replicaStatuses") or {}).values())
        return not active and has_true_condition({"status": status}, "Suspended")

    await first_answer(stopped, "all pods to stop")
    await scenario.patch(suspend=False, selector={"kind": "other"})
    await scenario.pods(3, {"kind": "other"})
    await scenario.set_phase("Succeeded")
    await scenario.wait_for_condition("Succeeded")
    job = await scenario.job()
    assert job["spec"]["runPolicy"]["suspend"] is False
    assert job["metadata"]["labels"] == labels
