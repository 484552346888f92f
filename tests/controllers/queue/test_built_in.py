"""A cluster whose Kueue looks after PyTorchJobs itself: what it does to a job, and what it reads from it.

The API server is real; the test plays Kueue and the kubelet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from tests.controllers.queue.real import define, running
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
    await define(client, definition_object())
    informers = InformerFactory(client)
    async with running(client, PyTorchJobController(client, informers, PyTorchJobSettings()), informers):
        yield client


class Story:
    def __init__(self, client: Client) -> None:
        self.client, self.name = client, f"train-{token_hex(3)}"

    async def job(self) -> Object:
        return await self.client.get(PYTORCHJOBS, self.name, "default")

    async def patch(self, *, suspend: bool, selector: Object | None) -> None:
        """Kueue starts and stops a job in one patch, template and all."""
        replicas = {kind: {"template": {"spec": {"nodeSelector": selector}}} for kind in ("Master", "Worker")}
        spec = {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": replicas}
        await self.client.patch(PYTORCHJOBS, self.name, {"spec": spec}, "default")

    async def pods(self, count: int, selector: Object | None = None) -> list[Object]:
        async def reached() -> bool:
            found = (await self._pods(), await self.job())
            return len(found[0]) == count and all(one["spec"].get("nodeSelector") == selector for one in found[0])

        await first_answer(reached, f"{count} pods with {selector}")
        return await self._pods()

    async def _pods(self) -> list[Object]:
        labels = f"training.kubeflow.org/job-name={self.name}"
        return (await self.client.list(PODS, "default", labels=labels)).items

    async def move(self, phase: str) -> None:
        for pod in await self._pods():
            state: Object = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
            status = {"name": "pytorch", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
            patch = {"status": {"phase": phase, "containerStatuses": [status]}}
            await self.client.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")

    async def says(self, type: str) -> None:
        async def reached() -> bool:
            return has_true_condition(await self.job(), type)

        await first_answer(reached, type)


async def test_what_kueue_reads_of_a_pytorchjob_is_there(real: Client) -> None:
    story = Story(real)
    body = pytorchjob(master=1, worker=2)
    body["spec"].setdefault("runPolicy", {})["suspend"] = True  # as its webhook does
    labels = {"kueue.x-k8s.io/queue-name": "theirs"}
    await real.create(PYTORCHJOBS, {**body, "metadata": {"name": story.name, "namespace": "default", "labels": labels}})
    await story.says("Suspended")
    await story.pods(0)
    await story.patch(suspend=False, selector={"kind": "fast"})
    await story.pods(3, {"kind": "fast"})
    await story.move("Running")
    await story.says("Running")
    await story.patch(suspend=True, selector=None)
    await story.pods(0)

    async def stopped() -> bool:
        status = (await story.job())["status"]
        active = sum((one or {}).get("active") or 0 for one in (status.get("replicaStatuses") or {}).values())
        return not active and has_true_condition({"status": status}, "Suspended")

    await first_answer(stopped, "the end of everything that used quota")
    await story.patch(suspend=False, selector={"kind": "other"})
    await story.pods(3, {"kind": "other"})
    await story.move("Succeeded")
    await story.says("Succeeded")
    job = await story.job()
    assert job["spec"]["runPolicy"]["suspend"] is False
    assert job["metadata"]["labels"] == labels
