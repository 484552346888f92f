"""Batch Jobs that change their size while they run, on a plane with its own job controller."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.conditions import find
from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, PYTORCHJOBS, WORKLOADS

Cluster = Any
ELASTIC = {names.ELASTIC: "true"}


async def free_pods(cluster: Cluster, count: int, *, gated: int = 0) -> list[Object]:
    """StayPending until so many pods of `grow` may be scheduled, and so many not."""

    async def reached() -> list[Object] | None:
        pods: list[Object] = (await cluster.client.list(PODS, "default")).items
        alive = [one for one in pods if not one["metadata"].get("deletionTimestamp")]
        held = [one for one in alive if one["spec"].get("schedulingGates")]
        return alive if (len(alive) - len(held), len(held)) == (count, gated) else None

    found: list[Object] = await cluster.until(reached, f"{count} free and {gated} gated pods")
    return found


async def resize(cluster: Cluster, parallelism: int) -> None:
    await cluster.client.patch(JOBS, "grow", {"spec": {"parallelism": parallelism}}, "default")


async def used(cluster: Cluster, cpu: str) -> None:
    async def reached() -> bool:
        status = (await cluster.client.get(CLUSTER_QUEUES, "team")).get("status") or {}
        totals = [one["total"] for flavor in status.get("flavorsUsage") or () for one in flavor["resources"]]
        return totals == [cpu]

    await cluster.until(reached, f"a usage of {cpu}")


async def test_a_job_grows_and_shrinks_while_it_runs(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=4)
    made = await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    assert made["spec"]["template"]["spec"]["schedulingGates"] == [{"name": names.ELASTIC}]
    await free_pods(cluster, 2)
    await resize(cluster, 4)
    await free_pods(cluster, 4)

    async def replaced() -> bool:
        ends = [
            find((one.get("status") or {}).get("conditions") or (), messages.FINISHED)
            for one in (await cluster.client.list(WORKLOADS, "default")).items
        ]
        return sorted(one["reason"] if one else "" for one in ends) == ["", messages.REASON_SLICE_REPLACED]

    await cluster.until(replaced, "the end of the first workload")
    await used(cluster, "4")
    await resize(cluster, 1)
    await used(cluster, "1")
    await free_pods(cluster, 1)
    job = await cluster.client.get(JOBS, "grow", "default")
    assert job["spec"]["suspend"] is False


async def test_what_has_no_quota_is_gated_until_it_has(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=3)
    await cluster.job("other", cpu=1)
    await cluster.running("other")
    await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    await cluster.running("grow")
    await resize(cluster, 3)

    async def waits() -> bool:
        found = (await cluster.client.list(WORKLOADS, "default")).items
        return any(
            (find((one.get("status") or {}).get("conditions") or (), messages.QUOTA_RESERVED) or {}).get("reason")
            == messages.REASON_WAITING_FOR_QUOTA
            for one in found
        )

    await cluster.until(waits, "a larger workload that waits")
    await free_pods(cluster, 3, gated=1)  # one of them is the other job's
    await cluster.move_pods("other", "Succeeded")
    await free_pods(cluster, 4)


async def test_a_smaller_wish_takes_the_larger_one_back(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    await cluster.running("grow")
    await resize(cluster, 5)

    async def count(expected: int) -> bool:
        return len((await cluster.client.list(WORKLOADS, "default")).items) == expected

    await cluster.until(lambda: count(2), "a second workload")
    await resize(cluster, 2)
    await cluster.until(lambda: count(1), "its end")
    await free_pods(cluster, 2)


@pytest.mark.parametrize(
    ("kind", "annotations", "said"),
    [
        ("Job", {**ELASTIC, names.MIN_PARALLELISM: "1"}, "cannot be combined with kueue.x-k8s.io/job-min-parallelism"),
        ("PyTorchJob", ELASTIC, "is supported for batch Jobs only; a PyTorchJob starts with the workers that fit"),
    ],
)
async def test_who_cannot_be_resized_is_told(cluster: Cluster, kind: str, annotations: Object, said: str) -> None:
    if kind == "Job":
        with pytest.raises(StatusError, match=said):
            await cluster.job("grow", parallelism=3, annotations=annotations)
        return
    container = {"name": "pytorch", "image": "busybox"}
    template = {"spec": {"containers": [container]}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {
            "name": "train",
            "namespace": "default",
            "labels": {names.QUEUE_NAME: "q"},
            "annotations": annotations,
        },
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
    }
    with pytest.raises(StatusError, match=said):
        await cluster.client.create(PYTORCHJOBS, body)
