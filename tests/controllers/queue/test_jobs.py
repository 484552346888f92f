"""Queued jobs from creation to finish: suspended, admitted, preempted, restored, finished, each with an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support import queues
from tests.support.pytorchjobs import job as pytorchjob

from torchyard.api.conditions import find
from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, messages
from torchyard.controllers.queue.gvr import CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, PYTORCHJOBS, WORKLOADS
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

Cluster = Any


async def test_job_is_queued_started_and_finished(cluster: Cluster) -> None:
    await cluster.with_queue(flavor=queues.flavor("default", {"kind": "fast"}))
    created = await cluster.job("train")
    assert created["spec"]["suspend"] is True
    started = await cluster.running("train")
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"kind": "fast"}
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
    assert (await cluster.condition("train", messages.ADMITTED))["message"] == messages.WORKLOAD_IS_ADMITTED
    await cluster.condition("train", messages.PODS_READY, "False", messages.REASON_WAIT_FOR_START)
    await cluster.set_pod_phase("train", "Running")
    await cluster.condition("train", messages.PODS_READY, "True", messages.REASON_STARTED)
    await cluster.set_pod_phase("train", "Succeeded")
    await cluster.condition("train", messages.FINISHED, "True", messages.REASON_SUCCEEDED)
    events = await cluster.events(
        job_messages.EVENT_CREATED_WORKLOAD,
        job_messages.EVENT_STARTED,
        job_messages.EVENT_FINISHED_WORKLOAD,
        messages.ADMITTED,
    )
    job_events = {event["reason"]: event for event in events if event["involvedObject"]["kind"] == "Job"}
    assert job_events[job_messages.EVENT_STARTED]["message"] == "Admitted by clusterQueue team"
    assert job_events[job_messages.EVENT_STARTED]["source"]["component"] == "batch/job-kueue-controller"
    workload = await cluster.workload("train")
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == created["metadata"]["uid"]
    assert workload["metadata"]["name"].startswith("job-train-")

    async def empty() -> bool:
        status = (await cluster.client.get(CLUSTER_QUEUES, "team")).get("status") or {}
        return status.get("reservingWorkloads") == 0 and status["flavorsUsage"][0]["resources"][0]["total"] == "0"

    await cluster.until(empty, "an empty queue")


async def test_preempted_job_is_restored_and_started_again(cluster: Cluster) -> None:
    await cluster.with_queue(
        flavor=queues.flavor("default", {"kind": "fast"}, tolerations=[{"key": "gpu", "operator": "Exists"}]),
        preemption={"withinClusterQueue": "LowerPriority"},
    )
    selector = {"disk": "large"}
    before = await cluster.job("low", cpu=2, pod={"nodeSelector": selector})
    await cluster.running("low")
    await cluster.job("high", cpu=2, labels={"kueue.x-k8s.io/priority-class": "high"})
    message = (await cluster.condition("low", messages.PREEMPTED))["message"]
    assert "due to prioritization in the ClusterQueue; preemptor path: /team; preemptee path: /team" in message
    stopped = await cluster.running("low", is_running=False)
    await cluster.running("high")
    stopped = await cluster.client.get(JOBS, "low", "default")
    assert stopped["spec"]["template"] == before["spec"]["template"]
    assert "startTime" not in stopped["status"]
    await cluster.set_pod_phase("high", "Succeeded")
    again = await cluster.running("low")
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {**selector, "kind": "fast"}
    await cluster.events(messages.PREEMPTED, job_messages.EVENT_STOPPED, "EvictedDueToPreempted")


async def test_quota_is_held_until_all_pods_are_gone(cluster: Cluster) -> None:
    await cluster.with_queue(preemption={"withinClusterQueue": "LowerPriority"})
    await cluster.job("low", cpu=2)
    await cluster.running("low")
    status = {"status": {"active": 1}}

    async def counted() -> bool:
        return bool(((await cluster.client.get(JOBS, "low", "default")).get("status") or {}).get("active"))

    await cluster.until(counted, "a pod")
    await cluster.job("high", cpu=2, labels={"kueue.x-k8s.io/priority-class": "high"})
    await cluster.running("high")
    low = await cluster.client.get(JOBS, "low", "default")
    assert not (low["status"].get("active") or 0), status


async def test_jobs_of_three_users_run_one_after_the_other(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("ann", cpu=2)
    await cluster.running("ann")
    await cluster.job("bob", cpu=2)
    message = (await cluster.condition("bob", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING))["message"]
    assert message.endswith("insufficient unused quota for cpu in flavor default, 2 more needed")
    await cluster.job("cay", cpu=2)
    await cluster.condition("cay", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)

    async def two_pending() -> bool:
        return ((await cluster.client.get(LOCAL_QUEUES, "q", "default")).get("status") or {}).get(
            "pendingWorkloads"
        ) == 2

    await cluster.until(two_pending, "two pending workloads")
    await cluster.set_pod_phase("ann", "Succeeded")
    await cluster.running("bob")
    await cluster.set_pod_phase("bob", "Succeeded")
    await cluster.running("cay")


async def test_pytorchjob_is_admitted_with_all_replicas_and_restored(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=3, flavor=queues.flavor("default", {"kind": "fast"}))
    body = pytorchjob(master=1, worker=2)
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    metadata = {"name": "train", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    created = await cluster.client.create(PYTORCHJOBS, {**body, "metadata": metadata})
    assert created["spec"]["runPolicy"]["suspend"] is True
    started = await cluster.running("train", gvr=PYTORCHJOBS)
    workload = await cluster.workload("train")
    assert [(pod_set["name"], pod_set["count"]) for pod_set in workload["spec"]["podSets"]] == [
        ("master", 1),
        ("worker", 2),
    ]
    assert workload["metadata"]["name"].startswith("pytorchjob-train-")
    for replica in started["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"kind": "fast"}
    await cluster.client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, "default")
    await cluster.running("train", is_running=False, gvr=PYTORCHJOBS)

    async def restored() -> bool:
        job = await cluster.client.get(PYTORCHJOBS, "train", "default")
        return bool(job["spec"]["pytorchReplicaSpecs"] == created["spec"]["pytorchReplicaSpecs"])

    await cluster.until(restored, "the old templates")


async def test_partially_admitted_job_gets_its_parallelism_back(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    await cluster.job("wide", parallelism=5, completions=9, annotations=annotations)
    started = await cluster.running("wide")
    assert started["spec"]["parallelism"] == 2
    workload = await cluster.workload("wide")
    await cluster.client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, "default")

    async def restored() -> bool:
        return bool((await cluster.client.get(JOBS, "wide", "default"))["spec"]["parallelism"] == 5)

    await cluster.until(restored, "the old parallelism")


async def test_succeeded_pods_release_their_quota(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("pair", parallelism=2, completions=2)
    await cluster.running("pair")
    await cluster.job("next")
    await cluster.condition("next", messages.QUOTA_RESERVED, "False")
    await cluster.set_pod_phase("pair", "Succeeded")
    await cluster.running("next")
    workload = await cluster.workload("pair")
    assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


async def test_job_is_stopped_at_its_maximum_execution_time(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("slow", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    await cluster.running("slow")
    evicted = await cluster.condition("slow", messages.EVICTED, reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    assert "exceeding the maximum execution time" in evicted["message"]
    await cluster.running("slow", is_running=False)
    assert (await cluster.workload("slow"))["spec"]["active"] is False


STOPS = {
    "a cluster queue": (CLUSTER_QUEUES, "team", "", messages.REASON_CLUSTER_QUEUE_STOPPED),
    "a local queue": (LOCAL_QUEUES, "q", "default", messages.REASON_LOCAL_QUEUE_STOPPED),
}


@pytest.mark.parametrize(("ref", "name", "namespace", "reason"), STOPS.values(), ids=STOPS)
async def test_a_stopped_queue_admits_nothing_and_drains(
    cluster: Cluster, ref: Any, name: str, namespace: str, reason: str
) -> None:
    await cluster.with_queue()
    await cluster.job("first")
    await cluster.running("first")
    await cluster.client.patch(ref, name, {"spec": {"stopPolicy": "Hold"}}, namespace)
    await cluster.job("second")
    pending = await cluster.condition("second", messages.QUOTA_RESERVED, "False", messages.REASON_INADMISSIBLE)
    assert pending["message"].endswith(f"Queue {name} is inactive")
    await cluster.running("first")
    await cluster.client.patch(ref, name, {"spec": {"stopPolicy": "HoldAndDrain"}}, namespace)
    await cluster.condition("first", messages.EVICTED, reason=reason)
    await cluster.running("first", is_running=False)
    await cluster.client.patch(ref, name, {"spec": {"stopPolicy": "None"}}, namespace)
    await cluster.running("first")
    await cluster.running("second")


async def test_admission_check_delays_the_start_and_updates_pods(cluster: Cluster) -> None:
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "budget"}}
    await cluster.client.create(CHECKS, {**check, "spec": {"controllerName": "example.com/budget"}})
    await cluster.with_queue(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})
    await cluster.job("train")
    await cluster.condition("train", messages.QUOTA_RESERVED)
    workload = await cluster.workload("train")
    assert find(workload["status"]["conditions"], messages.ADMITTED) is None
    [state] = workload["status"]["admissionChecks"]
    assert state["state"] == "Pending"
    ready = {**state, "state": "Ready", "podSetUpdates": [{"name": "main", "nodeSelector": {"paid": "yes"}}]}
    patch = {"status": {"admissionChecks": [ready]}}
    await cluster.client.patch(WORKLOADS, workload["metadata"]["name"], patch, "default", subresource="status")
    started = await cluster.running("train")
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"paid": "yes"}


async def test_gate_of_a_job_keeps_its_workload_pending(cluster: Cluster) -> None:
    await cluster.with_queue()
    gate = "kueue.x-k8s.io/admission-gated-by"
    await cluster.job("train", annotations={gate: "example.com/approval"})
    pending = await cluster.condition("train", messages.QUOTA_RESERVED, "False", messages.REASON_ADMISSION_GATED)
    assert pending["message"] == "Admission is gated by: example.com/approval"
    await cluster.client.patch(JOBS, "train", {"metadata": {"annotations": {gate: None}}}, "default")
    await cluster.running("train")


async def test_placeholder_queue_name_is_rejected(cluster: Cluster) -> None:
    with pytest.raises(StatusError, match=r"replace the placeholder .* for example default-user-queue"):
        await cluster.job("train", labels={"kueue.x-k8s.io/queue-name": "<project namespace>-user-queue"})


REASONS = {
    "an unknown queue": (
        {"labels": {"kueue.x-k8s.io/queue-name": "nope"}},
        "LocalQueue nope doesn't exist",
        "; LocalQueues in this namespace: q",
    ),
    "a job no queue ever holds": (
        {"cpu": 99},
        "insufficient quota for cpu in flavor default, previously considered podsets requests (0)"
        " + current podset request (99) > maximum capacity (2)",
        "; it will never fit: request less, or raise the quota of ClusterQueue team",
    ),
}


@pytest.mark.parametrize(("fields", "message", "advice"), REASONS.values(), ids=REASONS)
async def test_pending_workload_has_a_reason_and_an_event_with_advice(
    cluster: Cluster, fields: Object, message: str, advice: str
) -> None:
    await cluster.with_queue()
    await cluster.job("train", **fields)
    pending = await cluster.condition("train", messages.QUOTA_RESERVED, "False")
    assert pending["message"].endswith(message)
    events = await cluster.events(pending["reason"])
    assert pending["message"] + advice in [event["message"] for event in events]


async def test_missing_priority_class_is_reported(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels={"kueue.x-k8s.io/priority-class": "nope"})
    events = await cluster.events(job_messages.EVENT_PRIORITY_CLASS_NOT_FOUND)
    assert any(
        "create it, or use one that `kubectl get wpc` lists" in event["message"]
        for event in events
        if "message" in event
    )


async def test_running_job_cannot_change_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train")
    await cluster.running("train")
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    with pytest.raises(StatusError, match="while the job is not suspended"):
        await cluster.client.patch(JOBS, "train", patch, "default")


async def test_pending_job_can_change_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels={"kueue.x-k8s.io/queue-name": "nope"})
    await cluster.condition("train", messages.QUOTA_RESERVED, "False", messages.REASON_INADMISSIBLE)
    await cluster.client.patch(JOBS, "train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "default")
    await cluster.running("train")


async def test_job_started_without_quota_is_stopped(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", cpu=99)
    await cluster.condition("train", messages.QUOTA_RESERVED, "False")
    await cluster.client.patch(JOBS, "train", {"spec": {"suspend": False}}, "default")
    await cluster.running("train", is_running=False)


async def test_restarted_plane_knows_the_usage(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0)
    async with Plane(settings) as plane:
        cluster = _cluster(plane)
        await cluster.with_queue()
        await cluster.job("first", cpu=2)
        await cluster.running("first")
    async with Plane(settings) as plane:
        cluster = _cluster(plane)
        await cluster.job("second", cpu=2)
        await cluster.condition("second", messages.QUOTA_RESERVED, "False", messages.REASON_PENDING)
        await cluster.set_pod_phase("first", "Succeeded")
        await cluster.running("second")


def _cluster(plane: Plane) -> Cluster:
    from tests.controllers.queue.conftest import Cluster as QueueCluster

    return QueueCluster(plane.client("test"))


def _pod(name: str, group: str = "", size: int = 1) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "q", **({"kueue.x-k8s.io/pod-group-name": group} if group else {})}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size)} if group else {}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_pod_group_starts_together(cluster: Cluster) -> None:
    await cluster.with_queue(flavor=queues.flavor("default", {"kind": "fast"}))
    first = await cluster.client.create(PODS, _pod("a", "pair", 2))
    assert first["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    await cluster.client.create(PODS, _pod("b", "pair", 2))

    async def are_ungated() -> bool:
        pods = [await cluster.client.get(PODS, name, "default") for name in ("a", "b")]
        return all(not pod["spec"].get("schedulingGates") for pod in pods) and all(
            pod["spec"]["nodeSelector"] == {"kind": "fast"} for pod in pods
        )

    await cluster.until(are_ungated, "the start of both")
    for name in ("a", "b"):
        await cluster.client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, "default", subresource="status")

    async def finished() -> bool:
        workload = await cluster.client.get(WORKLOADS, "pair", "default")
        condition = find(workload["status"]["conditions"], messages.FINISHED)
        return condition is not None and condition["message"] == "Pods succeeded: 2/2."

    await cluster.until(finished, "the end")


async def test_single_pod_is_queued(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.client.create(PODS, _pod("alone"))

    async def is_open() -> bool:
        return not (await cluster.client.get(PODS, "alone", "default"))["spec"].get("schedulingGates")

    await cluster.until(is_open, "its start")
