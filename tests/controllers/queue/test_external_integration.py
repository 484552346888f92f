"""Jobs in the queues of a real cluster with Kueue's CRDs; the test takes the part of Kueue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from tests.controllers.queue.cluster_tasks import install_definitions, running
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
    """A client of a cluster whose Kueue serves v1beta2, or only v1beta1."""
    transport: Transport = HttpTransport(load(kube.kubeconfig), user_agent="test")
    client = Client(KueueV1Beta1Transport(transport) if request.param == "v1beta1" else transport, manager="test")
    await install_definitions(client, definition_object(), *definitions())
    informers = InformerFactory(client)
    async with running(client, ExternalIntegration(client, informers), informers):
        yield client


def admitted_status(workload: Object, flavor: str) -> Object:
    """What Kueue writes when it admits."""
    assignments = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}}
        for pod_set in workload["spec"]["podSets"]
    ]
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    return {"admission": {"clusterQueue": "theirs", "podSetAssignments": assignments}, "conditions": conditions}


class JobScenario:
    """One job and its workload."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.job, self.flavor = f"train-{token_hex(3)}", f"fast-{token_hex(3)}"
        self.workload = ""

    async def create_job(self) -> Object:
        kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        await self.client.create(FLAVORS, {**kueue, **queues.flavor(self.flavor, {"kind": "fast"})})
        labels = {"kueue.x-k8s.io/queue-name": "theirs"}
        metadata = {"name": self.job, "namespace": "default", "labels": labels}
        return await self.client.create(PYTORCHJOBS, {**pytorchjob(master=1, worker=2), "metadata": metadata})

    async def wait_for_workload(self, uid: str) -> Object:
        async def created() -> Object | None:
            selected = await self.client.list(WORKLOADS, "default", labels=f"kueue.x-k8s.io/job-uid={uid}")
            return selected.items[0] if selected.items else None

        workload: Object = await first_answer(created, "its workload")
        self.workload = workload["metadata"]["name"]
        return workload

    async def wait_for_suspend(self, expected: bool) -> Object:
        async def reached() -> Object | None:
            job = await self.client.get(PYTORCHJOBS, self.job, "default")
            return job if bool(job["spec"]["runPolicy"].get("suspend")) is expected else None

        job: Object = await first_answer(reached, "the suspension" if expected else "the start")
        return job

    async def write_status(self, status: Object) -> None:
        await self.client.patch(WORKLOADS, self.workload, {"status": status}, "default", subresource="status")

    async def condition(self, type: str, status: str, reason: str) -> Object:
        async def reached() -> Object | None:
            workload = await self.client.get(WORKLOADS, self.workload, "default")
            condition = find(workload["status"]["conditions"], type)
            is_reached = condition is not None and (condition["status"], condition["reason"]) == (status, reason)
            return workload if is_reached else None

        workload: Object = await first_answer(reached, f"{type}={status} {reason}")
        return workload

    async def write_job_condition(self, type: str, reason: str) -> None:
        """What the operator writes into the job's status."""
        now = "2026-01-01T00:00:00Z"
        condition = {"type": type, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": now}
        patch = {"status": {"conditions": [{**condition, "lastUpdateTime": now}]}}
        await self.client.patch(PYTORCHJOBS, self.job, patch, "default", subresource="status")


async def test_job_follows_its_workload(real: Client) -> None:
    scenario = JobScenario(real)
    created = await scenario.create_job()
    await scenario.wait_for_suspend(True)
    workload = await scenario.wait_for_workload(created["metadata"]["uid"])
    assert [pod_set["name"] for pod_set in workload["spec"]["podSets"]] == ["master", "worker"]
    assert workload["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    await scenario.write_status(admitted_status(workload, scenario.flavor))
    started = await scenario.wait_for_suspend(False)
    for replica in started["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"kind": "fast"}
    admitted = await real.get(WORKLOADS, scenario.workload, "default")
    await scenario.write_status(evict(admitted, "Preempted", "for another workload", 0.0))
    await scenario.wait_for_suspend(True)

    async def released() -> bool:
        status = (await real.get(WORKLOADS, scenario.workload, "default"))["status"]
        job = await real.get(PYTORCHJOBS, scenario.job, "default")
        is_restored = job["spec"]["pytorchReplicaSpecs"] == created["spec"]["pytorchReplicaSpecs"]
        return not status.get("admission") and is_restored

    await first_answer(released, "the release")


async def test_job_reports_to_its_workload_until_it_finishes(real: Client) -> None:
    scenario = JobScenario(real)
    created = await scenario.create_job()
    workload = await scenario.wait_for_workload(created["metadata"]["uid"])
    await scenario.write_status(admitted_status(workload, scenario.flavor))
    await scenario.wait_for_suspend(False)
    await scenario.condition("PodsReady", "False", "WaitForStart")
    await scenario.write_job_condition("Running", "PyTorchJobRunning")
    await scenario.condition("PodsReady", "True", "Started")
    await scenario.write_job_condition("Succeeded", "PyTorchJobSucceeded")
    await scenario.condition("Finished", "True", "Succeeded")

    async def finalizer_removed() -> bool:
        return not (await real.get(WORKLOADS, scenario.workload, "default"))["metadata"].get("finalizers")

    await first_answer(finalizer_removed, "the removal of the finalizer")
