"""Concurrent writers, events out of order, and names that other objects use: on both planes."""

from __future__ import annotations

import asyncio

import pytest
from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import NOW, job

from torchyard.api.errors import StatusError
from torchyard.api.gvr import EVENTS, PODS, SERVICES
from torchyard.api.pytorchjob import messages, names
from torchyard.controllers.pytorchjob import JOBS, PyTorchJobController
from torchyard.core.pytorchjob.replicas import make_service
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView
from torchyard.kube.informer_factory import InformerFactory


async def test_a_service_of_another_owner_is_not_adopted(cluster: Cluster) -> None:
    """Rows U17, C6."""
    stranger = {"metadata": {"name": "train-master-0"}, "spec": {"ports": [{"port": 1}]}}
    await cluster.client.create(SERVICES, stranger, cluster.namespace)
    await cluster.create(job(worker=None))
    events = await cluster.events(messages.SERVICE_NOT_CREATED)
    (refusal,) = [item for item in events if item["reason"] == messages.SERVICE_NOT_CREATED]
    assert (refusal["type"], "already exists" in refusal["message"]) == ("Warning", True)
    await cluster.client.delete(SERVICES, "train-master-0", cluster.namespace)

    async def ours() -> bool:
        service = await cluster.client.find(SERVICES, "train-master-0", cluster.namespace)
        return bool(service and service["metadata"].get("ownerReferences"))

    await cluster.until(ours)


@pytest.mark.parametrize("containers", [[], [{"name": "main", "image": "i"}]], ids=["none", "another"])
async def test_without_a_pytorch_container_no_service_is_created_and_an_event_says_so(
    cluster: Cluster, containers: list[dict[str, str]]
) -> None:
    """Row C6: rejected by the server that knows the rule, or by the controller where no webhook is installed."""
    manifest = job(master={"replicas": 1, "template": {"spec": {"containers": containers}}}, worker=None)
    try:
        await cluster.create(manifest)
        (event,) = await cluster.events(messages.NOT_VALID)
        message = event["message"]
    except StatusError as error:
        message = error.message
    assert "spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value" in message
    assert await cluster.names(SERVICES) == await cluster.names(PODS) == []


async def test_a_service_whose_owner_has_no_uid_is_rejected(cluster: Cluster) -> None:
    """Row C6."""
    view = PyTorchJobView.of({**job(), "metadata": {"name": "train", "namespace": cluster.namespace, "uid": ""}}, NOW)
    with pytest.raises(StatusError, match="ownerReferences") as refused:
        await cluster.client.create(SERVICES, make_service(view, (names.MASTER, 0)), cluster.namespace)
    assert refused.value.status == 422
    assert await cluster.names(SERVICES) == []


async def test_a_pod_with_an_invalid_index_label_is_ignored(cluster: Cluster) -> None:
    """Row U17."""
    created = await cluster.create(job(worker=1))
    await cluster.pods("train-master-0", "train-worker-0")
    labels = {
        names.OPERATOR_NAME: names.CONTROLLER,
        names.JOB_NAME: "train",
        names.REPLICA_TYPE: "worker",
        names.REPLICA_INDEX: "first",
    }
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": "train",
        "uid": created["metadata"]["uid"],
        "controller": True,
    }
    odd = {
        "metadata": {"name": "odd", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "pytorch", "image": "i"}]},
    }
    await cluster.client.create(PODS, odd, cluster.namespace)
    await cluster.move("train-master-0", "Running")
    await cluster.conditions(("Created", "True"), ("Running", "True"))
    await cluster.patch("train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    await cluster.pods("odd", "train-master-0", "train-worker-0", "train-worker-1")


async def test_two_concurrent_controllers_create_every_replica_once(cluster: Cluster) -> None:
    """Row U17: child names are deterministic, and a name that the job itself already uses is not an error."""
    informers = InformerFactory(cluster.client, namespace=cluster.namespace)
    second = PyTorchJobController(cluster.client, informers, PyTorchJobSettings())
    tasks = [asyncio.create_task(work) for work in (second.run(), informers.run())]
    try:
        await cluster.create(job(worker=8))
        expected = ("train-master-0", *(f"train-worker-{index}" for index in range(8)))
        await cluster.pods(*expected)
        await cluster.services(*expected)
        await cluster.move("train-master-0", "Running")
        await cluster.conditions(("Created", "True"), ("Running", "True"))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    events = (await cluster.client.list(EVENTS, cluster.namespace)).items
    assert not [item["message"] for item in events if item["type"] == "Warning"]


async def test_concurrent_edits_are_all_applied(cluster: Cluster) -> None:
    await cluster.create(job(worker=1))
    await cluster.pods("train-master-0", "train-worker-0")

    async def scale(count: int) -> None:
        await cluster.patch("train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}})

    async def mark(number: int) -> None:
        await cluster.patch("train", {"metadata": {"labels": {f"edit-{number}": "made"}}})

    await asyncio.gather(cluster.move("train-master-0", "Running"), *map(scale, (3, 5, 2)), *map(mark, range(6)))
    await scale(4)
    await cluster.pods("train-master-0", *(f"train-worker-{index}" for index in range(4)))
    current = await cluster.get()
    assert {f"edit-{number}" for number in range(6)} <= set(current["metadata"]["labels"])
    await cluster.conditions(("Created", "True"), ("Running", "True"))


async def test_a_failed_job_with_a_ttl_is_deleted(cluster: Cluster) -> None:
    """Upstream does not set the completion time here, and then cannot tell when the TTL has passed."""
    await cluster.create(job(worker=None, policy="ExitCode", run={"ttlSecondsAfterFinished": 1}))
    await cluster.pods("train-master-0")
    await cluster.move("train-master-0", "Running")
    await cluster.move("train-master-0", "Failed", code=1)
    await cluster.gone("train")


async def test_recreated_replicas_reach_the_backoff_limit(cluster: Cluster) -> None:
    """Upstream counts container restarts only, and restarts forever."""
    await cluster.create(job(worker=None, policy="ExitCode", run={"backoffLimit": 2}))
    before = ""

    async def anew() -> str:
        pod = await cluster.client.find(PODS, "train-master-0", cluster.namespace)
        uid = str(pod["metadata"]["uid"]) if pod else ""
        return uid if uid != before else ""

    for _ in range(2):
        before = await cluster.until(anew)
        await cluster.move("train-master-0", "Running")
        await cluster.move("train-master-0", "Failed", code=137)

    async def failed() -> bool:
        conditions = ((await cluster.get()).get("status") or {}).get("conditions") or ()
        return any((condition["type"], condition["status"]) == ("Failed", "True") for condition in conditions)

    await cluster.until(failed)
    assert (await cluster.get())["status"]["completionTime"]
    assert await cluster.client.find(JOBS, "train", cluster.namespace) is not None
