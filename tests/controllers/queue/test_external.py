"""Our jobs in the queues of a real cluster: its API server, Kueue's kinds on it, and a Kueue that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from tests.controllers.queue.real import define, running
from tests.support import queues
from tests.support.kubernetes import Server
from tests.support.pytorchjobs import job as pytorchjob
from tests.support.waiting import first_answer

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.api.queue.crd import definitions
from torchyard.controllers.queue.external import ExternalIntegration
from torchyard.controllers.queue.gvr import FLAVORS, PYTORCHJOBS, WORKLOADS
from torchyard.controllers.queue.kueue_v1beta1 import KueueV1Beta1Transport
from torchyard.core.queue.lifecycle import evict
from torchyard.kube.client import Client, Transport
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.kubeconfig import load

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["v1beta2", "v1beta1"])
async def real(kube: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of a cluster whose Kueue speaks the newer version, or only the older one."""
    transport: Transport = HttpTransport(load(kube.kubeconfig), user_agent="test")
    client = Client(KueueV1Beta1Transport(transport) if request.param == "v1beta1" else transport, manager="test")
    await define(client, definition_object(), *definitions())
    informers = InformerFactory(client)
    async with running(client, ExternalIntegration(client, informers), informers):
        yield client


def _status(workload: Object, flavor: str) -> Object:
    """What a Kueue writes when it admits."""
    sets = [
        {"name": one["name"], "count": one["count"], "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}}
        for one in workload["spec"]["podSets"]
    ]
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    return {"admission": {"clusterQueue": "theirs", "podSetAssignments": sets}, "conditions": conditions}


class Story:
    """One job and its workload."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.job, self.flavor = f"train-{token_hex(3)}", f"fast-{token_hex(3)}"
        self.workload = ""

    async def begin(self) -> Object:
        kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        await self.client.create(FLAVORS, {**kueue, **queues.flavor(self.flavor, {"kind": "fast"})})
        labels = {"kueue.x-k8s.io/queue-name": "theirs"}
        metadata = {"name": self.job, "namespace": "default", "labels": labels}
        return await self.client.create(PYTORCHJOBS, {**pytorchjob(master=1, worker=2), "metadata": metadata})

    async def composed(self, uid: str) -> Object:
        async def found() -> Object | None:
            selected = await self.client.list(WORKLOADS, "default", labels=f"kueue.x-k8s.io/job-uid={uid}")
            return selected.items[0] if selected.items else None

        workload: Object = await first_answer(found, "its workload")
        self.workload = workload["metadata"]["name"]
        return workload

    async def suspended(self, expected: bool) -> Object:
        async def reached() -> Object | None:
            job = await self.client.get(PYTORCHJOBS, self.job, "default")
            return job if bool(job["spec"]["runPolicy"].get("suspend")) is expected else None

        job: Object = await first_answer(reached, "the hold" if expected else "the start")
        return job

    async def write(self, status: Object) -> None:
        await self.client.patch(WORKLOADS, self.workload, {"status": status}, "default", subresource="status")

    async def condition(self, type: str, status: str, reason: str) -> Object:
        async def reached() -> Object | None:
            workload = await self.client.get(WORKLOADS, self.workload, "default")
            one = find(workload["status"]["conditions"], type)
            return workload if one and (one["status"], one["reason"]) == (status, reason) else None

        workload: Object = await first_answer(reached, f"{type}={status} {reason}")
        return workload

    async def says(self, type: str, reason: str) -> None:
        """What the operator writes into the job's status."""
        now = "2026-01-01T00:00:00Z"
        one = {"type": type, "status": "True", "reason": reason, "message": "said", "lastTransitionTime": now}
        patch = {"status": {"conditions": [{**one, "lastUpdateTime": now}]}}
        await self.client.patch(PYTORCHJOBS, self.job, patch, "default", subresource="status")


async def test_a_job_follows_its_workload(real: Client) -> None:
    story = Story(real)
    made = await story.begin()
    await story.suspended(True)
    workload = await story.composed(made["metadata"]["uid"])
    assert [one["name"] for one in workload["spec"]["podSets"]] == ["master", "worker"]
    assert workload["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    await story.write(_status(workload, story.flavor))
    started = await story.suspended(False)
    for replica in started["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"kind": "fast"}
    admitted = await real.get(WORKLOADS, story.workload, "default")
    await story.write(evict(admitted, "Preempted", "for somebody else", 0.0))
    await story.suspended(True)

    async def released() -> bool:
        found = (await real.get(WORKLOADS, story.workload, "default"))["status"]
        job = await real.get(PYTORCHJOBS, story.job, "default")
        same = job["spec"]["pytorchReplicaSpecs"] == made["spec"]["pytorchReplicaSpecs"]
        return not found.get("admission") and same

    await first_answer(released, "the release")


async def test_a_job_reports_to_its_workload_until_it_ends(real: Client) -> None:
    story = Story(real)
    made = await story.begin()
    workload = await story.composed(made["metadata"]["uid"])
    await story.write(_status(workload, story.flavor))
    await story.suspended(False)
    await story.condition("PodsReady", "False", "WaitForStart")
    await story.says("Running", "PyTorchJobRunning")
    await story.condition("PodsReady", "True", "Started")
    await story.says("Succeeded", "PyTorchJobSucceeded")
    await story.condition("Finished", "True", "Succeeded")

    async def let_go() -> bool:
        return not (await real.get(WORKLOADS, story.workload, "default"))["metadata"].get("finalizers")

    await first_answer(let_go, "the end of our interest")
