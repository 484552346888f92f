"""Our jobs in the queues of a real cluster: its API server, Kueue's kinds on it, and a Kueue that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support import queues
from tests.support.kubernetes import Server
from tests.support.pytorchjobs import job as pytorchjob

from torchyard.api.errors import StatusError
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.api.queue.crd import definitions
from torchyard.controllers.queue.external import ExternalIntegration
from torchyard.controllers.queue.refs import FLAVORS, PYTORCHJOBS, WORKLOADS
from torchyard.core.queue.lifecycle import evict
from torchyard.kube.client import Client, Ref
from torchyard.kube.http import HttpTransport
from torchyard.kube.informers import Informers
from torchyard.kube.kubeconfig import load

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
Cluster = Any
DEFINITIONS = Ref("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


@pytest.fixture
async def real(kube: Server) -> AsyncIterator[Client]:
    client = Client(HttpTransport(load(kube.kubeconfig), user_agent="test"), manager="test")
    for one in (definition_object(), *definitions()):
        try:
            await client.create(DEFINITIONS, one)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    for one in (definition_object(), *definitions()):
        while not _established(await client.get(DEFINITIONS, one["metadata"]["name"])):
            await asyncio.sleep(0.05)
    informers = Informers(client)
    integration = ExternalIntegration(client, informers)
    tasks = [asyncio.create_task(integration.run()), asyncio.create_task(informers.run())]
    try:
        yield client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.close()
        await asyncio.sleep(0.25)  # as aiohttp asks: TLS connections take a moment to close


def _established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def _until(what: Any, about: str) -> Any:
    for _ in range(1500):
        answer = await what()
        if answer:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"{about} did not happen")


async def test_a_job_follows_its_workload(real: Client) -> None:
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    await real.create(FLAVORS, {**kueue, "kind": "ResourceFlavor", **queues.flavor("fast", {"kind": "fast"})})
    body = pytorchjob(master=1, worker=2)
    metadata = {"name": "train", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "theirs"}}
    made = await real.create(PYTORCHJOBS, {**body, "metadata": metadata})

    async def suspended(expected: bool) -> Object | None:
        job = await real.get(PYTORCHJOBS, "train", "default")
        return job if bool(job["spec"]["runPolicy"].get("suspend")) is expected else None

    await _until(lambda: suspended(True), "the hold")

    async def composed() -> Object | None:
        items = (await real.list(WORKLOADS, "default")).items
        return items[0] if items else None

    workload = await _until(composed, "its workload")
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == made["metadata"]["uid"]
    assert [one["name"] for one in workload["spec"]["podSets"]] == ["master", "worker"]
    sets = [
        {"name": one["name"], "count": one["count"], "flavors": {"cpu": "fast"}, "resourceUsage": {"cpu": "1"}}
        for one in workload["spec"]["podSets"]
    ]
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "theirs", "podSetAssignments": sets}, "conditions": conditions}
    name = workload["metadata"]["name"]
    await real.patch(WORKLOADS, name, {"status": status}, "default", subresource="status")
    started = await _until(lambda: suspended(False), "its start")
    for replica in started["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"kind": "fast"}
    admitted = await real.get(WORKLOADS, name, "default")
    gone = {"status": evict(admitted, "Preempted", "for somebody else", 0.0)}
    await real.patch(WORKLOADS, name, gone, "default", subresource="status")
    await _until(lambda: suspended(True), "its end")

    async def released() -> bool:
        found = (await real.get(WORKLOADS, name, "default"))["status"]
        job = await real.get(PYTORCHJOBS, "train", "default")
        same = job["spec"]["pytorchReplicaSpecs"] == made["spec"]["pytorchReplicaSpecs"]
        return not found.get("admission") and same

    await _until(released, "the release")
