"""One pass of the TrainJob controller over given objects, with a client that records what it is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError
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
        self.delete_error: StatusError | None = None

    async def patch(self, ref: GroupVersionResource, name: str, body: Object, _namespace: str, **_: Any) -> Object:
        self.statuses.append(body["status"])
        return {**train_job(), "status": body["status"]}

    async def delete(self, ref: GroupVersionResource, name: str, _namespace: str, *, uid: str = "") -> None:
        self.deleted.append((ref.plural, name, uid))
        if self.delete_error is not None:
            raise self.delete_error


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

    async def reconcile(self) -> float | None:
        return await self.controller._reconcile(KEY)


def train_job(*, status: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    metadata |= {"creationTimestamp": to_rfc3339(NOW), "annotations": annotations or {}}
    made: Object = {"metadata": metadata, "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec}}
    return {**made, "status": status} if status else made


def jobset(owner: str = "u") -> Object:
    metadata = {"name": "job", "namespace": "ns", "uid": f"jobset-of-{owner}", "resourceVersion": "2"}
    return {
        "metadata": {**metadata, "ownerReferences": [{"uid": owner, "kind": "TrainJob", "name": "job"}]},
        "spec": {},
    }


async def test_a_deadline_does_not_delete_a_jobset_of_the_same_name_that_is_not_the_jobs() -> None:
    given = Pass()
    given.sees(train_job(activeDeadlineSeconds=5), jobset(owner="a user's"))
    given.now = NOW + timedelta(seconds=6)
    with pytest.raises(Exception, match="belongs to another object"):
        await given.reconcile()
    assert given.client.statuses[0]["state"] == "Failed"
    assert given.client.deleted == []


async def test_a_jobset_whose_deletion_failed_is_deleted_in_the_next_pass() -> None:
    given = Pass()
    given.sees(train_job(activeDeadlineSeconds=5), jobset())
    given.now = NOW + timedelta(seconds=6)
    given.client.delete_error = StatusError(500, "InternalError", "no")
    with pytest.raises(StatusError):
        await given.reconcile()
    given.sees(train_job(activeDeadlineSeconds=5, status=given.client.statuses[0]))
    given.client.delete_error = None
    await given.reconcile()
    assert given.client.deleted == [("jobsets", "job", "jobset-of-u")] * 2
    assert len(given.client.statuses) == 1


async def test_the_time_to_live_deletes_this_job_and_no_successor() -> None:
    given = Pass()
    ended = {"type": "Complete", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": to_rfc3339(NOW)}
    annotations = {"torchyard.dev/ttl-seconds-after-finished": "0"}
    given.sees(train_job(status={"conditions": [ended]}, annotations=annotations))
    await given.reconcile()
    assert given.client.deleted == [("trainjobs", "job", "u")]
