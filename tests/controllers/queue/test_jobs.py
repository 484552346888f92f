"""Jobs in queues from start to end: held back, admitted, preempted, restored, finished, and told so at every step."""

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
from torchyard.api.queue import messages
from torchyard.controllers.queue.gvr import CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, PYTORCHJOBS, WORKLOADS
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

Cluster = Any


async def test_a_job_waits_runs_and_finishes(cluster: Cluster) -> None:
    await cluster.with_queue(flavor=queues.flavor("default", {"kind": "fast"}))
    made = await cluster.job("train")
    assert made["spec"]["suspend"] is True
    started = await cluster.running("train")
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"kind": "fast"}
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
    assert (await cluster.condition("train", messages.ADMITTED))["message"] == messages.WORKLOAD_IS_ADMITTED
    await cluster.condition("train", messages.PODS_READY, "False", messages.REASON_WAIT_FOR_START)
    await cluster.move_pods("train", "Running")
    await cluster.condition("train", messages.PODS_READY, "True", messages.REASON_STARTED)
    await cluster.move_pods("train", "Succeeded")
    await cluster.condition("train", messages.FINISHED, "True", messages.REASON_SUCCEEDED)
    told = await cluster.events(
        messages.EVENT_CREATED_WORKLOAD, messages.EVENT_STARTED, messages.EVENT_FINISHED_WORKLOAD, messages.ADMITTED
    )
    mine = {one["reason"]: one for one in told if one["involvedObject"]["kind"] == "Job"}
    assert mine[messages.EVENT_STARTED]["message"] == "Admitted by clusterQueue team"
    assert mine[messages.EVENT_STARTED]["source"]["component"] == "batch/job-kueue-controller"
    workload = await cluster.workload("train")
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == made["metadata"]["uid"]
    assert workload["metadata"]["name"].startswith("job-train-")

    async def empty() -> bool:
        status = (await cluster.client.get(CLUSTER_QUEUES, "team")).get("status") or {}
        return status.get("reservingWorkloads") == 0 and status["flavorsUsage"][0]["resources"][0]["total"] == "0"

    await cluster.until(empty, "an empty queue")


async def test_a_preempted_job_becomes_what_it_was_and_runs_again(cluster: Cluster) -> None:
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
    await cluster.move_pods("high", "Succeeded")
    again = await cluster.running("low")
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {**selector, "kind": "fast"}
    await cluster.events(messages.PREEMPTED, messages.EVENT_STOPPED, "EvictedDueToPreempted")


async def test_quota_is_held_until_no_pod_is_left(cluster: Cluster) -> None:
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


async def test_three_users_share_a_queue_in_turn(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("ann", cpu=2)
    await cluster.running("ann")
    await cluster.job("bob", cpu=2)
    said = (await cluster.condition("bob", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_QUOTA))[
        "message"
    ]
    assert said.endswith("insufficient unused quota for cpu in flavor default, 2 more needed")
    await cluster.job("cay", cpu=2)
    await cluster.condition("cay", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_QUOTA)

    async def two_wait() -> bool:
        return ((await cluster.client.get(LOCAL_QUEUES, "q", "default")).get("status") or {}).get(
            "pendingWorkloads"
        ) == 2

    await cluster.until(two_wait, "two waiting")
    await cluster.move_pods("ann", "Succeeded")
    await cluster.running("bob")
    await cluster.move_pods("bob", "Succeeded")
    await cluster.running("cay")


async def test_a_pytorchjob_waits_for_all_its_replicas(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=3, flavor=queues.flavor("default", {"kind": "fast"}))
    body = pytorchjob(master=1, worker=2)
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    metadata = {"name": "train", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    made = await cluster.client.create(PYTORCHJOBS, {**body, "metadata": metadata})
    assert made["spec"]["runPolicy"]["suspend"] is True
    started = await cluster.running("train", ref=PYTORCHJOBS)
    workload = await cluster.workload("train")
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("master", 1), ("worker", 2)]
    assert workload["metadata"]["name"].startswith("pytorchjob-train-")
    for replica in started["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"kind": "fast"}
    await cluster.client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, "default")
    await cluster.running("train", is_running=False, ref=PYTORCHJOBS)

    async def restored() -> bool:
        found = await cluster.client.get(PYTORCHJOBS, "train", "default")
        return bool(found["spec"]["pytorchReplicaSpecs"] == made["spec"]["pytorchReplicaSpecs"])

    await cluster.until(restored, "the old templates")


async def test_a_job_takes_fewer_pods_and_gets_all_back(cluster: Cluster) -> None:
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


async def test_pods_that_ended_make_room(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=2)
    await cluster.job("pair", parallelism=2, completions=2)
    await cluster.running("pair")
    await cluster.job("next")
    await cluster.condition("next", messages.QUOTA_RESERVED, "False")
    await cluster.move_pods("pair", "Succeeded")
    await cluster.running("next")
    workload = await cluster.workload("pair")
    assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


async def test_a_job_ends_when_its_time_is_up(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("slow", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    await cluster.running("slow")
    found = await cluster.condition("slow", messages.EVICTED, reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    assert "The maximum execution time (1s) exceeded" in found["message"]
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
    said = (await cluster.condition("second", messages.QUOTA_RESERVED, "False", messages.REASON_SUSPENDED))["message"]
    assert said.endswith("is stopped")
    await cluster.running("first")
    await cluster.client.patch(ref, name, {"spec": {"stopPolicy": "HoldAndDrain"}}, namespace)
    await cluster.condition("first", messages.EVICTED, reason=reason)
    await cluster.running("first", is_running=False)
    await cluster.client.patch(ref, name, {"spec": {"stopPolicy": "None"}}, namespace)
    await cluster.running("first")
    await cluster.running("second")


async def test_an_admission_check_has_a_say(cluster: Cluster) -> None:
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


async def test_a_placeholder_is_told_as_such(cluster: Cluster) -> None:
    with pytest.raises(StatusError, match=r"replace the placeholder .* for example default-user-queue"):
        await cluster.job("train", labels={"kueue.x-k8s.io/queue-name": "<project namespace>-user-queue"})


WAITS = {
    "an unknown queue": (
        {"labels": {"kueue.x-k8s.io/queue-name": "nope"}},
        "LocalQueue nope doesn't exist; LocalQueues in this namespace: q",
    ),
    "a job no queue ever holds": (
        {"cpu": 99},
        "insufficient quota for cpu in flavor default, previously considered podsets requests (0)"
        " + current podset request (99) > maximum capacity (2);"
        " it will never fit: request less, or raise the quota of ClusterQueue team",
    ),
}


@pytest.mark.parametrize(("fields", "said"), WAITS.values(), ids=WAITS)
async def test_what_cannot_be_admitted_is_told_why(cluster: Cluster, fields: Object, said: str) -> None:
    await cluster.with_queue()
    await cluster.job("train", **fields)
    assert said in (await cluster.condition("train", messages.QUOTA_RESERVED, "False"))["message"]


async def test_a_wrong_priority_class_is_told(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels={"kueue.x-k8s.io/priority-class": "nope"})
    told = await cluster.events(messages.EVENT_PRIORITY_CLASS_NOT_FOUND)
    assert any(
        "create it, or use one that `kubectl get wpc` lists" in one["message"] for one in told if "message" in one
    )


async def test_a_running_job_stays_in_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train")
    await cluster.running("train")
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    with pytest.raises(StatusError, match="while the job is not suspended"):
        await cluster.client.patch(JOBS, "train", patch, "default")


async def test_a_waiting_job_may_change_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels={"kueue.x-k8s.io/queue-name": "nope"})
    await cluster.condition("train", messages.QUOTA_RESERVED, "False", messages.REASON_MISCONFIGURED)
    await cluster.client.patch(JOBS, "train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "default")
    await cluster.running("train")


async def test_who_starts_a_job_by_hand_is_stopped(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", cpu=99)
    await cluster.condition("train", messages.QUOTA_RESERVED, "False")
    await cluster.client.patch(JOBS, "train", {"spec": {"suspend": False}}, "default")
    await cluster.running("train", is_running=False)


async def test_a_plane_that_comes_back_knows_what_is_in_use(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0)
    async with Plane(settings) as plane:
        cluster = _cluster(plane)
        await cluster.with_queue()
        await cluster.job("first", cpu=2)
        await cluster.running("first")
    async with Plane(settings) as plane:
        cluster = _cluster(plane)
        await cluster.job("second", cpu=2)
        await cluster.condition("second", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_QUOTA)
        await cluster.move_pods("first", "Succeeded")
        await cluster.running("second")


def _cluster(plane: Plane) -> Cluster:
    from tests.controllers.queue.conftest import Cluster as Made

    return Made(plane.client("test"))


def _pod(name: str, group: str = "", size: int = 1) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "q", **({"kueue.x-k8s.io/pod-group-name": group} if group else {})}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size)} if group else {}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_a_group_of_pods_starts_together(cluster: Cluster) -> None:
    await cluster.with_queue(flavor=queues.flavor("default", {"kind": "fast"}))
    first = await cluster.client.create(PODS, _pod("a", "pair", 2))
    assert first["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    await cluster.client.create(PODS, _pod("b", "pair", 2))

    async def open_gates() -> bool:
        found = [await cluster.client.get(PODS, name, "default") for name in ("a", "b")]
        return all(not one["spec"].get("schedulingGates") for one in found) and all(
            one["spec"]["nodeSelector"] == {"kind": "fast"} for one in found
        )

    await cluster.until(open_gates, "the start of both")
    for name in ("a", "b"):
        await cluster.client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, "default", subresource="status")

    async def finished() -> bool:
        workload = await cluster.client.get(WORKLOADS, "pair", "default")
        found = find(workload["status"]["conditions"], messages.FINISHED)
        return found is not None and found["message"] == "Pods succeeded: 2/2."

    await cluster.until(finished, "the end")


async def test_a_lone_pod_queues_too(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.client.create(PODS, _pod("alone"))

    async def is_open() -> bool:
        return not (await cluster.client.get(PODS, "alone", "default"))["spec"].get("schedulingGates")

    await cluster.until(is_open, "its start")
