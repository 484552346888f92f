"""Elastic batch Jobs on a plane with its job controller."""

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


async def wait_for_pods(cluster: Cluster, count: int, *, gated: int = 0) -> list[Object]:
    """Wait until this many pods are ungated and gated."""

    async def reached() -> list[Object] | None:
        pods: list[Object] = (await cluster.client.list(PODS, "default")).items
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        with_gates = [pod for pod in alive if pod["spec"].get("schedulingGates")]
        return alive if (len(alive) - len(with_gates), len(with_gates)) == (count, gated) else None

    pods: list[Object] = await cluster.until(reached, f"{count} ungated and {gated} gated pods")
    return pods


async def resize(cluster: Cluster, parallelism: int) -> None:
    await cluster.client.patch(JOBS, "grow", {"spec": {"parallelism": parallelism}}, "default")


async def wait_for_usage(cluster: Cluster, cpu: str) -> None:
    async def reached() -> bool:
        status = (await cluster.client.get(CLUSTER_QUEUES, "team")).get("status") or {}
        totals = [resource["total"] for flavor in status.get("flavorsUsage") or () for resource in flavor["resources"]]
        return totals == [cpu]

    await cluster.until(reached, f"a usage of {cpu}")


async def test_elastic_job_grows_and_shrinks(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=4)
    job = await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    assert job["spec"]["template"]["spec"]["schedulingGates"] == [{"name": names.ELASTIC}]
    await wait_for_pods(cluster, 2)
    await resize(cluster, 4)
    await wait_for_pods(cluster, 4)

    async def replaced() -> bool:
        conditions = [
            find((obj.get("status") or {}).get("conditions") or (), messages.FINISHED)
            for obj in (await cluster.client.list(WORKLOADS, "default")).items
        ]
        return sorted(condition["reason"] if condition else "" for condition in conditions) == [
            "",
            messages.REASON_SLICE_REPLACED,
        ]

    await cluster.until(replaced, "the replacement of the first workload")
    await wait_for_usage(cluster, "4")
    await resize(cluster, 1)
    await wait_for_usage(cluster, "1")
    await wait_for_pods(cluster, 1)
    job = await cluster.client.get(JOBS, "grow", "default")
    assert job["spec"]["suspend"] is False


async def test_additional_pods_are_gated_until_they_have_quota(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=3)
    await cluster.job("other", cpu=1)
    await cluster.running("other")
    await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    await cluster.running("grow")
    await resize(cluster, 3)

    async def is_pending() -> bool:
        workloads = (await cluster.client.list(WORKLOADS, "default")).items
        return any(
            (find((obj.get("status") or {}).get("conditions") or (), messages.QUOTA_RESERVED) or {}).get("reason")
            == messages.REASON_PENDING
            for obj in workloads
        )

    await cluster.until(is_pending, "a larger workload that is pending")
    await wait_for_pods(cluster, 3, gated=1)  # one of them is the other job's
    await cluster.set_pod_phase("other", "Succeeded")
    await wait_for_pods(cluster, 4)


async def test_shrinking_deletes_the_pending_larger_slice(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("grow", parallelism=2, completions=50, annotations=ELASTIC)
    await cluster.running("grow")
    await resize(cluster, 5)

    async def count(expected: int) -> bool:
        return len((await cluster.client.list(WORKLOADS, "default")).items) == expected

    await cluster.until(lambda: count(2), "a second workload")
    await resize(cluster, 2)
    await cluster.until(lambda: count(1), "its deletion")
    await wait_for_pods(cluster, 2)


@pytest.mark.parametrize(
    ("kind", "annotations", "message"),
    [
        ("Job", {**ELASTIC, names.MIN_PARALLELISM: "1"}, "cannot be combined with kueue.x-k8s.io/job-min-parallelism"),
        ("PyTorchJob", ELASTIC, "is supported for batch Jobs only; a PyTorchJob starts with the workers that fit"),
    ],
)
async def test_elastic_annotation_is_rejected_where_unsupported(
    cluster: Cluster, kind: str, annotations: Object, message: str
) -> None:
    if kind == "Job":
        with pytest.raises(StatusError, match=message):
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
    with pytest.raises(StatusError, match=message):
        await cluster.client.create(PYTORCHJOBS, body)
