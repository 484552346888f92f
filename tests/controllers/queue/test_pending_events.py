"""A pending job gets an event that says why, once for each reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import queues
from tests.support.pytorchjobs import job as pytorchjob

from torchyard.api.gvr import EVENTS, JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.controllers.queue.gvr import LOCAL_QUEUES, PYTORCHJOBS
from torchyard.controllers.queue.pending_events import PendingEvents

Cluster = Any
UNKNOWN = {"kueue.x-k8s.io/queue-name": "nope"}
NO_SUCH_QUEUE = "LocalQueue nope doesn't exist; LocalQueues in this namespace: q"


async def wait_for_event(cluster: Cluster, kind: str, name: str, reason: str) -> Object:
    """Wait for an event about an object."""

    async def recorded() -> Object | None:
        return next(iter(await events_about(cluster, kind, name, reason)), None)

    event: Object = await cluster.until(recorded, f"{reason} about {kind} {name}")
    return event


async def events_about(cluster: Cluster, kind: str, name: str, reason: str) -> list[Object]:
    events = (await cluster.client.list(EVENTS, "default")).items
    involved = [
        event for event in events if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
    ]
    return [event for event in involved if event["reason"] == reason and "kueue" in event["source"]["component"]]


REASONS: dict[str, tuple[Object, str, str]] = {
    "unknown queue": ({"labels": UNKNOWN}, messages.REASON_MISCONFIGURED, NO_SUCH_QUEUE),
    "waiting for quota": (
        {"cpu": 2},
        messages.REASON_WAITING_FOR_QUOTA,
        "insufficient unused quota for cpu in flavor default, 1 more needed",
    ),
    "exceeds the quota": (
        {"cpu": 9},
        messages.REASON_EXCEEDS_MAX_QUOTA,
        "it will never fit: request less, or raise the quota of ClusterQueue",
    ),
}


@pytest.mark.parametrize(("fields", "reason", "message"), REASONS.values(), ids=REASONS)
async def test_job_gets_an_event_why_it_is_pending(cluster: Cluster, fields: Object, reason: str, message: str) -> None:
    await cluster.with_queue()
    await cluster.job("first")
    await cluster.running("first")
    await cluster.job("train", **fields)
    event = await wait_for_event(cluster, "Job", "train", reason)
    assert message in event["message"]
    assert (event["type"], event["source"]["component"]) == ("Warning", "batch/job-kueue-controller")


async def test_reason_is_reported_once_even_if_its_advice_changes(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels=UNKNOWN)
    await wait_for_event(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    await cluster.create("LocalQueue", queues.local("another"))
    await cluster.job("last", labels=UNKNOWN)
    await wait_for_event(
        cluster, "Job", "last", messages.REASON_MISCONFIGURED
    )  # events are written in order, so none is pending for `train`
    events = await events_about(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    assert [(event["message"], event["count"]) for event in events] == [(NO_SUCH_QUEUE, 1)]


async def test_next_reason_is_reported(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels=UNKNOWN)
    await wait_for_event(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    stopped = {"spec": {"stopPolicy": "Hold"}}
    await cluster.client.patch(LOCAL_QUEUES, "q", stopped, "default")
    await cluster.client.patch(JOBS, "train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "default")
    assert (await wait_for_event(cluster, "Job", "train", messages.REASON_SUSPENDED))[
        "message"
    ] == "LocalQueue q is inactive: its stopPolicy is set"


async def test_pytorchjob_gets_an_event_why_it_is_pending(cluster: Cluster) -> None:
    await cluster.with_queue()
    body = pytorchjob(master=1, worker=2)
    body["metadata"] = {"name": "train", "namespace": "default", "labels": UNKNOWN}
    await cluster.client.create(PYTORCHJOBS, body)
    event = await wait_for_event(cluster, "PyTorchJob", "train", messages.REASON_MISCONFIGURED)
    assert event["message"] == NO_SUCH_QUEUE
    assert event["source"]["component"] == "kubeflow.org/pytorchjob-kueue-controller"


async def test_every_pod_of_a_group_gets_an_event(cluster: Cluster) -> None:
    await cluster.with_queue()
    for name in ("a", "b"):
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": {**UNKNOWN, "kueue.x-k8s.io/pod-group-name": "pair"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        }
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
        await cluster.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    for name in ("a", "b"):
        assert (await wait_for_event(cluster, "Pod", name, messages.REASON_MISCONFIGURED))["message"] == NO_SUCH_QUEUE


def pending_workload(status: str, reason: str, message: str, *, evicted: str = "") -> Object:
    conditions = [{"type": messages.QUOTA_RESERVED, "status": status, "reason": reason, "message": message}]
    if evicted:
        conditions.append({"type": messages.EVICTED, "status": "True", "reason": "Preempted", "message": evicted})
    return {"metadata": {"uid": "u"}, "status": {"conditions": conditions}}


def test_reason_is_reported_again_after_an_admission() -> None:
    events, pending = PendingEvents(), pending_workload("False", messages.REASON_WAITING_FOR_QUOTA, "no room")
    assert events.next_event(pending) == (messages.REASON_WAITING_FOR_QUOTA, "no room")
    assert events.next_event(pending) is None
    events.workload_changed("MODIFIED", pending_workload("True", messages.QUOTA_RESERVED, "reserved"))
    assert events.next_event(pending) == (messages.REASON_WAITING_FOR_QUOTA, "no room")


def test_eviction_message_is_not_reported_as_pending_reason() -> None:
    events = PendingEvents()
    assert (
        events.next_event(pending_workload("False", messages.REASON_PENDING, "preempted", evicted="preempted")) is None
    )
    assert events.next_event(
        pending_workload("False", messages.REASON_WAITING_FOR_QUOTA, "no room", evicted="preempted")
    ) == (
        messages.REASON_WAITING_FOR_QUOTA,
        "no room",
    )


def test_whose_workload_was_not_looked_at_is_told_nothing() -> None:
    assert PendingEvents().next_event({"metadata": {"uid": "u"}}) is None
