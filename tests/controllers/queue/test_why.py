"""Why a job waits is told where its user looks first: at the job, once for every reason."""

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


async def told(cluster: Cluster, kind: str, name: str, reason: str) -> Object:
    """The event about an object, when it is there."""

    async def there() -> Object | None:
        return next(iter(await about(cluster, kind, name, reason)), None)

    found: Object = await cluster.until(there, f"{reason} about {kind} {name}")
    return found


async def about(cluster: Cluster, kind: str, name: str, reason: str) -> list[Object]:
    listed = (await cluster.client.list(EVENTS, "default")).items
    of_it = [one for one in listed if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)]
    return [one for one in of_it if one["reason"] == reason and "kueue" in one["source"]["component"]]


WAITS: dict[str, tuple[Object, str, str]] = {
    "an unknown queue": ({"labels": UNKNOWN}, messages.REASON_MISCONFIGURED, NO_SUCH_QUEUE),
    "no room now": (
        {"cpu": 2},
        messages.REASON_WAITING_FOR_QUOTA,
        "insufficient unused quota for cpu in flavor default, 1 more needed",
    ),
    "no room ever": (
        {"cpu": 9},
        messages.REASON_EXCEEDS_MAX_QUOTA,
        "it will never fit: request less, or raise the quota of ClusterQueue",
    ),
}


@pytest.mark.parametrize(("fields", "reason", "said"), WAITS.values(), ids=WAITS)
async def test_a_job_says_why_it_waits(cluster: Cluster, fields: Object, reason: str, said: str) -> None:
    await cluster.with_queue()
    await cluster.job("first")
    await cluster.running("first")
    await cluster.job("train", **fields)
    event = await told(cluster, "Job", "train", reason)
    assert said in event["message"]
    assert (event["type"], event["source"]["component"]) == ("Warning", "batch/job-kueue-controller")


async def test_a_reason_is_told_once_however_its_words_change(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels=UNKNOWN)
    await told(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    await cluster.make("LocalQueue", queues.local("another"))
    message = f"{NO_SUCH_QUEUE.removesuffix('q')}another, q"

    async def is_known() -> bool:
        return bool((await cluster.condition("train", messages.QUOTA_RESERVED, "False"))["message"] == message)

    await cluster.until(is_known, "the other queue in the words for it")
    await cluster.job("last", labels=UNKNOWN)
    await told(cluster, "Job", "last", messages.REASON_MISCONFIGURED)  # so that what was to be told before it was
    events = await about(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    assert [(one["message"], one["count"]) for one in events] == [(NO_SUCH_QUEUE, 1)]


async def test_the_next_reason_is_told_too(cluster: Cluster) -> None:
    await cluster.with_queue()
    await cluster.job("train", labels=UNKNOWN)
    await told(cluster, "Job", "train", messages.REASON_MISCONFIGURED)
    stopped = {"spec": {"stopPolicy": "Hold"}}
    await cluster.client.patch(LOCAL_QUEUES, "q", stopped, "default")
    await cluster.client.patch(JOBS, "train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "default")
    assert (await told(cluster, "Job", "train", messages.REASON_SUSPENDED))["message"] == "LocalQueue q is stopped"


async def test_a_pytorchjob_says_why_it_waits(cluster: Cluster) -> None:
    await cluster.with_queue()
    body = pytorchjob(master=1, worker=2)
    body["metadata"] = {"name": "train", "namespace": "default", "labels": UNKNOWN}
    await cluster.client.create(PYTORCHJOBS, body)
    event = await told(cluster, "PyTorchJob", "train", messages.REASON_MISCONFIGURED)
    assert event["message"] == NO_SUCH_QUEUE
    assert event["source"]["component"] == "kubeflow.org/pytorchjob-kueue-controller"


async def test_every_pod_of_a_group_says_why_it_waits(cluster: Cluster) -> None:
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
        assert (await told(cluster, "Pod", name, messages.REASON_MISCONFIGURED))["message"] == NO_SUCH_QUEUE


def a_workload(status: str, reason: str, message: str, *, evicted: str = "") -> Object:
    conditions = [{"type": messages.QUOTA_RESERVED, "status": status, "reason": reason, "message": message}]
    if evicted:
        conditions.append({"type": messages.EVICTED, "status": "True", "reason": "Preempted", "message": evicted})
    return {"metadata": {"uid": "u"}, "status": {"conditions": conditions}}


def test_who_was_admitted_and_waits_again_is_told_again() -> None:
    reasons, waiting = PendingEvents(), a_workload("False", messages.REASON_WAITING_FOR_QUOTA, "no room")
    assert reasons.next_event(waiting) == (messages.REASON_WAITING_FOR_QUOTA, "no room")
    assert reasons.next_event(waiting) is None
    reasons.workload_changed("MODIFIED", a_workload("True", messages.QUOTA_RESERVED, "here it is"))
    assert reasons.next_event(waiting) == (messages.REASON_WAITING_FOR_QUOTA, "no room")


def test_who_was_stopped_is_not_told_the_same_as_a_reason_to_wait() -> None:
    reasons = PendingEvents()
    assert reasons.next_event(a_workload("False", messages.REASON_PENDING, "preempted", evicted="preempted")) is None
    assert reasons.next_event(
        a_workload("False", messages.REASON_WAITING_FOR_QUOTA, "no room", evicted="preempted")
    ) == (
        messages.REASON_WAITING_FOR_QUOTA,
        "no room",
    )


def test_whose_workload_was_not_looked_at_is_told_nothing() -> None:
    assert PendingEvents().next_event({"metadata": {"uid": "u"}}) is None
