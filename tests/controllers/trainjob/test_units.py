"""One pass of the TrainJob controller over given objects, with a client that records what it is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.trainjob import TrainJobController
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = ("ns", "job")


class Recorder:
    """Stands for the client: stores the status, notes deletions, fails them if told."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str, str]] = []
        self.statuses: list[Object] = []
        self.runtime: Object | None = None
        self.logs_read: list[str] = []
        self.delete_error: StatusError | None = None

    async def find(self, ref: GroupVersionResource, _name: str, _namespace: str) -> Object | None:
        return None if ref.plural == "configmaps" else self.runtime

    async def create(self, _ref: GroupVersionResource, obj: Object) -> Object:
        return obj

    async def patch(self, ref: GroupVersionResource, name: str, body: Object, _namespace: str, **_: Any) -> Object:
        self.statuses.append(body["status"])
        return {**train_job(), "status": body["status"]}

    async def delete(self, ref: GroupVersionResource, name: str, _namespace: str, *, uid: str = "") -> None:
        self.deleted.append((ref.plural, name, uid))
        if self.delete_error is not None:
            raise self.delete_error

    async def logs(self, ref: GroupVersionResource, name: str, _namespace: str, **_: Any) -> AsyncGenerator[bytes]:
        self.logs_read.append(name)
        yield f"log of {name}".encode()


class Pass:
    """The controller with what its informers have seen."""

    def __init__(self) -> None:
        self.client, self.now = Recorder(), NOW
        client = cast("Client", self.client)
        self.controller = TrainJobController(client, InformerFactory(client), clock=lambda: self.now)

    def sees(self, job: Object, *jobsets: Object) -> None:
        self.controller._jobs._apply("MODIFIED", job)
        for jobset in jobsets:
            self.controller._jobsets._apply("MODIFIED", jobset)

    async def failure(self, job: Object, jobset: Object | None, *pods: Object) -> str:
        """The first failed pod of a job, after its informer has seen these pods."""
        for pod in pods:
            self.controller._failures.pods._apply("MODIFIED", pod)
        failure = await self.controller._failures.find(job, jobset)
        return "" if failure is None else failure.container.pod

    async def reconcile(self) -> float | None:
        return await self.controller._reconcile(KEY)


def train_job(*, status: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    metadata |= {"creationTimestamp": to_rfc3339(NOW), "annotations": annotations or {}}
    job: Object = {"metadata": metadata, "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec}}
    return {**job, "status": status} if status else job


def jobset(owner: str = "u") -> Object:
    metadata = {"name": "job", "namespace": "ns", "uid": f"jobset-of-{owner}", "resourceVersion": "2"}
    return {
        "metadata": {**metadata, "ownerReferences": [{"uid": owner, "kind": "TrainJob", "name": "job"}]},
        "spec": {},
    }


def pod(name: str, code: int, *, second: int = 0, attempt: int = 0, uid: str = "jobset-of-u") -> Object:
    """A failed pod of the job's JobSet."""
    prefix = "jobset.sigs.k8s.io/"
    labels = {f"{prefix}jobset-name": "job", f"{prefix}jobset-uid": uid, f"{prefix}restart-attempt": str(attempt)}
    ended = {"exitCode": code, "finishedAt": to_rfc3339(NOW + timedelta(seconds=second))}
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "3", "labels": labels}
    return {"metadata": metadata, "status": {"containerStatuses": [{"name": "node", "state": {"terminated": ended}}]}}


async def test_an_error_that_is_seen_after_a_signal_becomes_the_first_failure() -> None:
    controller_pass, job = Pass(), train_job()
    assert await controller_pass.failure(job, jobset(), pod("a", 143)) == "a"
    assert await controller_pass.failure(job, jobset(), pod("b", 1, second=1)) == "b"
    controller_pass.controller._failures.pods._apply("DELETED", pod("b", 1, second=1))
    assert await controller_pass.failure(job, jobset()) == "b"
    assert controller_pass.client.logs_read == ["a", "b"]


async def test_failures_of_an_earlier_attempt_and_of_another_jobset_do_not_count() -> None:
    controller_pass, job = Pass(), train_job()
    assert await controller_pass.failure(job, jobset(), pod("other", 1, uid="another"), pod("a", 1)) == "a"
    restarted = {**jobset(), "status": {"restarts": 1}}
    assert await controller_pass.failure(job, restarted) == ""
    assert await controller_pass.failure(job, restarted, pod("b", 1, second=9, attempt=1)) == "b"


async def test_a_suspension_clears_the_first_failure() -> None:
    controller_pass = Pass()
    assert await controller_pass.failure(train_job(), jobset(), pod("a", 1)) == "a"
    assert await controller_pass.failure(train_job(suspend=True), jobset()) == ""
    resumed = train_job(status={"resumeTime": to_rfc3339(NOW + timedelta(seconds=5))})
    assert await controller_pass.failure(resumed, jobset()) == ""
    assert await controller_pass.failure(resumed, jobset(), pod("b", 1, second=6)) == "b"


async def test_a_deadline_does_not_delete_a_jobset_of_the_same_name_that_is_not_the_jobs() -> None:
    controller_pass = Pass()
    controller_pass.sees(train_job(activeDeadlineSeconds=5), jobset(owner="a user's"))
    controller_pass.now = NOW + timedelta(seconds=6)
    with pytest.raises(Exception, match="belongs to another object"):
        await controller_pass.reconcile()
    assert controller_pass.client.statuses[0]["state"] == "Failed"
    assert controller_pass.client.deleted == []


async def test_a_jobset_whose_deletion_failed_is_deleted_in_the_next_pass() -> None:
    controller_pass = Pass()
    controller_pass.sees(train_job(activeDeadlineSeconds=5), jobset())
    controller_pass.now = NOW + timedelta(seconds=6)
    controller_pass.client.delete_error = StatusError(500, "InternalError", "no")
    with pytest.raises(StatusError):
        await controller_pass.reconcile()
    controller_pass.sees(train_job(activeDeadlineSeconds=5, status=controller_pass.client.statuses[0]))
    controller_pass.client.delete_error = None
    await controller_pass.reconcile()
    assert controller_pass.client.deleted == [("jobsets", "job", "jobset-of-u")] * 2
    assert len(controller_pass.client.statuses) == 1


async def test_the_time_to_live_deletes_this_job_and_no_successor() -> None:
    controller_pass = Pass()
    ended = {"type": "Complete", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": to_rfc3339(NOW)}
    annotations = {"torchyard.dev/ttl-seconds-after-finished": "0"}
    controller_pass.sees(train_job(status={"conditions": [ended]}, annotations=annotations))
    await controller_pass.reconcile()
    assert controller_pass.client.deleted == [("trainjobs", "job", "u")]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({}, "must contain the required container for the ancestor: trainer"),
        (
            {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}},
            "must contain the required container for the ancestor: trainer",
        ),
    ],
    ids=["no pod template", "no container node"],
)
async def test_a_runtime_that_is_not_valid_is_in_the_condition(template: Object, words: str) -> None:
    controller_pass = Pass()
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    replicated = {"name": "node", "template": {"metadata": {"labels": labels}, **template}}
    spec = {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [replicated]}}}
    controller_pass.client.runtime = {"metadata": {"name": "torch-distributed"}, "spec": spec}
    controller_pass.sees(train_job())
    with pytest.raises(YardError):
        await controller_pass.reconcile()
    (condition,) = controller_pass.client.statuses[0]["conditions"]
    assert (condition["type"], condition["status"]) == ("ResourcesCreated", "False")
    assert words in condition["message"]


async def test_an_error_that_was_not_expected_is_in_the_condition_too() -> None:
    controller_pass = Pass()
    controller_pass.client.runtime = {"metadata": {"name": "torch-distributed"}}
    controller_pass.sees(train_job())
    with pytest.raises(KeyError):
        await controller_pass.reconcile()
    (condition,) = controller_pass.client.statuses[0]["conditions"]
    assert "internal error KeyError: 'spec'" in condition["message"]
