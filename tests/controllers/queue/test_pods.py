"""Plain pods with a queue: their labels, groups with too many or failed pods, and the pods of Deployments."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.queue.conftest import Cluster

from torchyard.api.conditions import find, has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.queue.gvr import PRIORITY_CLASSES, WORKLOADS

DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
STATEFUL_SETS = GroupVersionResource("apps", "v1", "statefulsets")
_CONTAINER = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}


def _pod(name: str, group: str = "", size: int = 1, labels: Object | None = None, **metadata: Any) -> Object:
    all_labels = {names.QUEUE_NAME: "q", **({names.POD_GROUP: group} if group else {}), **(labels or {})}
    annotations = {names.POD_GROUP_SIZE: str(size)} if group else {}
    meta = {"name": name, "namespace": "default", "labels": all_labels, "annotations": annotations, **metadata}
    spec = {"restartPolicy": "Never", "containers": [_CONTAINER]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def _spec(cluster: Cluster, pod: str) -> Object:
    workload = await cluster.workload(pod)
    spec: Object = {} if workload is None else workload["spec"]
    return spec


async def _is_gated(cluster: Cluster, name: str) -> bool:
    return bool((await cluster.client.get(PODS, name, "default"))["spec"].get("schedulingGates"))


async def _set_phase(cluster: Cluster, name: str, phase: str) -> None:
    await cluster.client.patch(PODS, name, {"status": {"phase": phase}}, "default", subresource="status")


async def test_pod_has_the_priority_and_the_time_limit_of_its_labels(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.client.create(PODS, _pod("a", labels={names.PRIORITY: "high", names.MAX_SECONDS: "60"}))

    async def has_both() -> bool:
        spec = await _spec(cluster, "a")
        return (spec.get("priority"), spec.get("maximumExecutionTimeSeconds")) == (100, 60)

    await cluster.until(has_both, "its priority and limit")
    assert (await _spec(cluster, "a"))["priorityClassRef"]["name"] == "high"


async def test_pod_waits_for_its_priority_class(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.client.create(PODS, _pod("a", labels={names.PRIORITY: "later"}))
    await cluster.job("b", labels={names.PRIORITY: "later"})

    async def are_reported() -> bool:
        events = await cluster.events("WorkloadPriorityClassNotFound")
        named = {
            event["involvedObject"]["name"] for event in events if event["reason"] == "WorkloadPriorityClassNotFound"
        }
        return named == {"a", "b"}

    await cluster.until(are_reported, "an event for each")
    await cluster.create("WorkloadPriorityClass", {"metadata": {"name": "later"}, "value": 7})

    async def have_workloads() -> bool:
        return [(await _spec(cluster, name)).get("priority") for name in ("a", "b")] == [7, 7]

    await cluster.until(have_workloads, "the workloads")


async def test_pods_beyond_the_size_of_their_group_are_deleted(cluster: Cluster) -> None:
    await cluster.with_queue()
    for name in ("a", "b"):
        await cluster.client.create(PODS, _pod(name, "pair", 2))

    async def have_started() -> bool:
        return not await _is_gated(cluster, "a") and not await _is_gated(cluster, "b")

    await cluster.until(have_started, "the start of the group")
    await cluster.client.create(PODS, _pod("c", "pair", 2))

    async def is_deleted() -> bool:
        return [pod["metadata"]["name"] for pod in (await cluster.client.list(PODS, "default")).items] == ["a", "b"]

    await cluster.until(is_deleted, "the deletion of the third pod")


async def test_failed_pod_of_a_group_is_replaced(cluster: Cluster) -> None:
    await cluster.with_queue()
    for name in ("a", "b"):
        await cluster.client.create(PODS, _pod(name, "pair", 2))

    async def have_started() -> bool:
        return not await _is_gated(cluster, "a") and not await _is_gated(cluster, "b")

    await cluster.until(have_started, "the start of the group")
    await _set_phase(cluster, "a", "Failed")
    await _set_phase(cluster, "b", "Succeeded")

    async def waits_for_replacement() -> bool:
        workload = await cluster.client.get(WORKLOADS, "pair", "default")
        counts = [entry["count"] for entry in workload["status"].get("reclaimablePods") or ()]
        return has_true_condition(workload, messages.WAITING_FOR_REPLACEMENT_PODS) and counts == [1]

    await cluster.until(waits_for_replacement, "the wait for a replacement")
    await cluster.client.create(PODS, _pod("c", "pair", 2))

    async def is_replaced() -> bool:
        workload = await cluster.client.get(WORKLOADS, "pair", "default")
        return not await _is_gated(cluster, "c") and len(workload["metadata"]["ownerReferences"]) == 3

    await cluster.until(is_replaced, "the start of the replacement")
    await _set_phase(cluster, "c", "Succeeded")

    async def is_finished() -> bool:
        workload = await cluster.client.get(WORKLOADS, "pair", "default")
        condition = find(workload["status"]["conditions"], messages.FINISHED)
        return condition is not None and condition["message"] == "Pods succeeded: 2/2."

    await cluster.until(is_finished, "the end")


async def test_workload_of_a_gated_pod_follows_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.client.create(PODS, _pod("a", labels={names.QUEUE_NAME: "missing"}))

    async def has_workload() -> bool:
        return bool(await _spec(cluster, "a"))

    await cluster.until(has_workload, "its workload")
    await cluster.client.patch(PODS, "a", {"metadata": {"labels": {names.QUEUE_NAME: "q"}}}, "default")

    async def is_open() -> bool:
        return not await _is_gated(cluster, "a")

    await cluster.until(is_open, "its start")
    with pytest.raises(StatusError, match="immutable while"):
        await cluster.client.patch(PODS, "a", {"metadata": {"labels": {names.QUEUE_NAME: None}}}, "default")


async def test_pods_of_a_deployment_are_queued_one_by_one(cluster: Cluster) -> None:
    await cluster.with_queue()
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [_CONTAINER]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    labels = {names.QUEUE_NAME: "q", names.PRIORITY: "high"}
    metadata = {"name": "web", "namespace": "default", "labels": labels}
    created = await cluster.client.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    )
    assert created["spec"]["template"]["metadata"]["labels"] == {"app": "web", **labels}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "1", "controller": True}
    pod = await cluster.client.create(PODS, _pod("web-1-a", labels=labels, ownerReferences=[owner]))
    assert pod["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]


async def test_job_of_a_cron_job_starts_suspended_but_not_that_of_a_jobset(cluster: Cluster) -> None:
    for kind, api_version, is_suspended in (
        ("CronJob", "batch/v1", True),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", False),
    ):
        owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": True}
        labels = {names.QUEUE_NAME: "q"}
        metadata = {"name": kind.lower(), "namespace": "default", "labels": labels, "ownerReferences": [owner]}
        template = {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        created = await cluster.client.create(JOBS, body)
        assert bool(created["spec"].get("suspend")) == is_suspended, kind


async def test_queue_of_a_stateful_set_is_refused(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [_CONTAINER]}}
    spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    metadata = {"name": "db", "namespace": "default", "labels": {names.QUEUE_NAME: "q"}}
    with pytest.raises(StatusError, match="StatefulSets are not queued"):
        await cluster.client.create(
            STATEFUL_SETS, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        )


async def test_workloads_follow_the_value_of_their_class_and_running_jobs_their_label(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.create("WorkloadPriorityClass", {"metadata": {"name": "low"}, "value": 1})
    await cluster.job("a", labels={names.PRIORITY: "low"})
    await cluster.running("a")
    await cluster.client.patch(PRIORITY_CLASSES, "low", {"value": 5})

    async def has_new_value() -> bool:
        return (await _spec(cluster, "a")).get("priority") == 5

    await cluster.until(has_new_value, "the new value")
    await cluster.client.patch(JOBS, "a", {"metadata": {"labels": {names.PRIORITY: "high"}}}, "default")

    async def has_other_class() -> bool:
        spec = await _spec(cluster, "a")
        return (spec["priority"], spec["priorityClassRef"]["name"]) == (100, "high")

    await cluster.until(has_other_class, "the other class")
