"""What becomes of quota when jobs and workloads are deleted, or grow beyond what they were given."""

from __future__ import annotations

from typing import Any

from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.queue.gvr import WORKLOADS

Cluster = Any


async def _gone(cluster: Cluster, name: str) -> None:
    async def reached() -> bool:
        return await cluster.client.find(WORKLOADS, name, "default") is None

    await cluster.until(reached, f"the end of {name}")


async def test_a_workload_goes_with_its_job(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("first", cpu=2)
    await cluster.running("first")
    workload = await cluster.workload("first")
    assert workload["metadata"]["finalizers"] == [names.IN_USE]
    await cluster.job("second", cpu=2)
    await cluster.client.delete(JOBS, "first", "default")
    await _gone(cluster, workload["metadata"]["name"])
    await cluster.running("second")


async def test_a_workload_that_ended_can_be_deleted(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train")
    await cluster.move_pods("train", "Succeeded")
    await cluster.condition("train", messages.FINISHED)

    async def is_free() -> bool:
        return not (await cluster.workload("train"))["metadata"].get("finalizers")

    await cluster.until(is_free, "the end of our interest")


async def test_a_deleted_workload_holds_its_quota_until_nothing_runs(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", cpu=2)
    await cluster.running("train")
    [pod] = await cluster.until(lambda: _pods(cluster), "its pod")
    kept = {"metadata": {"finalizers": ["example.com/slow-to-go"]}}
    await cluster.client.patch(PODS, pod["metadata"]["name"], kept, "default")
    await cluster.move_pods("train", "Running")
    await cluster.job("next", cpu=2, labels={"kueue.x-k8s.io/priority-class": "high"})
    await cluster.condition("next", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_QUOTA)
    first = await cluster.workload("train")
    await cluster.client.delete(WORKLOADS, first["metadata"]["name"], "default")
    await cluster.running("train", is_running=False)
    held = await cluster.client.get(WORKLOADS, first["metadata"]["name"], "default")
    assert held["status"]["admission"], "the pod is still there"
    await cluster.condition("next", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_QUOTA)
    free = {"metadata": {"finalizers": None}}
    await cluster.client.patch(PODS, pod["metadata"]["name"], free, "default")
    await cluster.running("next")

    async def composed_anew() -> bool:
        found = await cluster.workload("train")
        return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

    await cluster.until(composed_anew, "another workload")


async def _pods(cluster: Cluster) -> list[Object]:
    found: list[Object] = (await cluster.client.list(PODS, "default")).items
    return found


async def test_a_running_job_that_grows_waits_for_the_larger_size(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("train", parallelism=1, completions=9)
    await cluster.running("train")
    await cluster.client.patch(JOBS, "train", {"spec": {"parallelism": 3}}, "default")
    said = (await cluster.condition("train", messages.QUOTA_RESERVED, "False", messages.REASON_EXCEEDS_MAX_QUOTA))[
        "message"
    ]
    assert "current podset request (3) > maximum capacity (2)" in said
    await cluster.running("train", is_running=False)
    await cluster.events(messages.EVENT_DELETED_WORKLOAD)
    await cluster.client.patch(JOBS, "train", {"spec": {"parallelism": 2}}, "default")
    await cluster.running("train")
