"""The quota of jobs and workloads that are deleted, or grow beyond their admission."""

from __future__ import annotations

from typing import Any

from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, messages, names
from torchyard.controllers.queue.gvr import WORKLOADS

Cluster = Any


async def _wait_until_deleted(cluster: Cluster, name: str) -> None:
    async def reached() -> bool:
        return await cluster.client.find(WORKLOADS, name, "default") is None

    await cluster.until(reached, f"the deletion of {name}")


async def test_workload_is_deleted_with_its_job(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("first", cpu=2)
    await cluster.running("first")
    workload = await cluster.workload("first")
    assert workload["metadata"]["finalizers"] == [names.IN_USE]
    await cluster.job("second", cpu=2)
    await cluster.client.delete(JOBS, "first", "default")
    await _wait_until_deleted(cluster, workload["metadata"]["name"])
    await cluster.running("second")


async def test_finished_workload_loses_its_finalizer(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train")
    await cluster.set_pod_phase("train", "Succeeded")
    await cluster.condition("train", messages.FINISHED)

    async def finalizer_removed() -> bool:
        return not (await cluster.workload("train"))["metadata"].get("finalizers")

    await cluster.until(finalizer_removed, "the removal of the finalizer")


async def test_deleted_workload_holds_its_quota_until_its_pods_are_gone(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", cpu=2)
    await cluster.running("train")
    [pod] = await cluster.until(lambda: _pods(cluster), "its pod")
    blocked = {"metadata": {"finalizers": ["example.com/slow"]}}
    await cluster.client.patch(PODS, pod["metadata"]["name"], blocked, "default")
    await cluster.set_pod_phase("train", "Running")
    await cluster.job("next", cpu=2, labels={"kueue.x-k8s.io/priority-class": "high"})
    await cluster.condition("next", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
    first = await cluster.workload("train")
    await cluster.client.delete(WORKLOADS, first["metadata"]["name"], "default")
    await cluster.running("train", is_running=False)
    workload = await cluster.client.get(WORKLOADS, first["metadata"]["name"], "default")
    assert workload["status"]["admission"], "the pod still exists"
    await cluster.condition("next", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
    unblocked = {"metadata": {"finalizers": None}}
    await cluster.client.patch(PODS, pod["metadata"]["name"], unblocked, "default")
    await cluster.running("next")

    async def recreated() -> bool:
        workload = await cluster.workload("train")
        return workload is not None and workload["metadata"]["uid"] != first["metadata"]["uid"]

    await cluster.until(recreated, "another workload")


async def _pods(cluster: Cluster) -> list[Object]:
    pods: list[Object] = (await cluster.client.list(PODS, "default")).items
    return pods


async def test_running_job_that_grows_is_queued_with_its_new_size(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("train", parallelism=1, completions=9)
    await cluster.running("train")
    await cluster.client.patch(JOBS, "train", {"spec": {"parallelism": 3}}, "default")
    pending = await cluster.condition("train", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
    assert "current podset request (3) > maximum capacity (2)" in pending["message"]
    await cluster.running("train", is_running=False)
    await cluster.events(job_messages.EVENT_DELETED_WORKLOAD)
    await cluster.client.patch(JOBS, "train", {"spec": {"parallelism": 2}}, "default")
    await cluster.running("train")
