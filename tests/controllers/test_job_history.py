"""Which record the pods of a job go into."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from torchyard.api.gvr import JOBS
from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.controllers.job_history import JobHistoryController
from torchyard.controllers.queue.gvr import JOBSETS, TRAINJOBS
from torchyard.core.run.record import ReplicaRecord, RunRecord
from torchyard.kube.informer_factory import InformerFactory

UID = "6d2b3f0a-0000-4000-8000-000000000001"
ENDED = {"exitCode": 7, "reason": "Error", "finishedAt": "2026-01-01T12:01:00Z"}
NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)


class EmptyStore:
    def uids(self) -> set[str]:
        return set()

    def write(self, records: list[RunRecord], replicas: list[tuple[str, ReplicaRecord]]) -> None: ...

    def prune(self, before: datetime) -> None: ...

    def close(self) -> None: ...


def job(uid: str, minute: int, *, ended: bool = False) -> Object:
    created = f"2026-01-01T12:{minute:02}:00Z"
    conditions = [{"type": state, "status": "True"} for state in ("Complete", "Completed")] if ended else []
    metadata = {"name": "t", "namespace": "team", "uid": uid, "creationTimestamp": created, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}


def ended_pod(name: str, minute: int) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": f"2026-01-01T12:{minute:02}:01Z",
            "labels": {JOBSET_NAME: "t"},
            "ownerReferences": [{"uid": "of-a-job", "name": "t-node-0", "controller": True}],
        },
        "spec": {"containers": [{"name": "node"}]},
        "status": {"phase": "Succeeded"},
    }


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_pods_of_a_new_job_do_not_go_into_the_record_of_an_earlier_one_of_its_name(kind: str) -> None:
    informers = InformerFactory(cast(Any, None))
    kinds = {"JobSet": JOBSETS, "TrainJob": TRAINJOBS}
    history = JobHistoryController(informers, kinds, EmptyStore(), keep=timedelta(days=1), clock=lambda: NOW)

    def recorded() -> list[tuple[str, str]]:
        return [(uid, replica["pod"]) for uid, replica in history._replicas]

    history._job_changed(kind, "MODIFIED", job("first", 0, ended=True), None)
    history._pod_changed("MODIFIED", ended_pod("a", 0), None)
    history._job_changed(kind, "DELETED", job("first", 0, ended=True), None)
    history._job_changed(kind, "ADDED", job("second", 5), None)
    history._pod_changed("MODIFIED", ended_pod("b", 5), None)
    history._pod_changed("DELETED", ended_pod("c", 0), None)  # takes long to stop
    assert recorded() == [("first", "a"), ("first", "c")]
    history._job_changed(kind, "MODIFIED", job("second", 5, ended=True), None)
    history._pod_changed("DELETED", ended_pod("b", 5), None)
    assert recorded()[2:] == [("second", "b")]


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_pods_that_are_deleted_before_their_job_fails_are_in_its_record(kind: str) -> None:
    kinds = {"JobSet": JOBSETS, "TrainJob": TRAINJOBS, "Job": JOBS}
    informers = InformerFactory(cast(Any, None))
    history = JobHistoryController(informers, kinds, EmptyStore(), keep=timedelta(days=1), clock=lambda: NOW)
    history._jobs[kind]._apply("ADDED", job("first", 0))
    for name in ("t-node-0-0-a", "t-node-0-0-b"):
        pod = ended_pod(name, 0)
        pod["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "0"}
        pod["metadata"]["generateName"] = "t-node-0-0-"
        pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": ENDED}}]}
        pod["metadata"]["ownerReferences"][0] |= {"kind": "Job", "uid": UID}
        history._pod_changed("DELETED", pod, None)
    failed = job("first", 0)
    failed["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    history._jobs[kind]._apply("MODIFIED", failed)
    assert [(replica["pod"], replica["controller"]) for replica in history._records[0]["replicas"]] == [
        ("t-node-0-0-b", UID)
    ]
    assert history._records[0]["exitCode"] == ENDED["exitCode"]
    assert not history._deleted


def test_deleted_pods_of_jobs_that_are_not_recorded_are_not_kept() -> None:
    """The garbage collector deletes the pods of a Job after it; a CronJob leaves thousands of such Jobs."""
    informers = InformerFactory(cast(Any, None))
    history = JobHistoryController(informers, {"Job": JOBS}, EmptyStore(), keep=timedelta(days=1), clock=lambda: NOW)

    def delete_pod() -> None:
        pod = ended_pod("t-a", 0)
        del pod["metadata"]["labels"]
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "first", "name": "t", "controller": True}]
        history._pod_changed("DELETED", pod, None)

    of_cron_job = job("first", 0)
    of_cron_job["metadata"]["ownerReferences"] = [{"kind": "CronJob", "uid": "c", "name": "c", "controller": True}]
    history._jobs["Job"]._apply("ADDED", of_cron_job)
    delete_pod()
    history._jobs["Job"]._apply("DELETED", of_cron_job)
    delete_pod()
    assert not history._deleted and not history._replicas


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_deleted_pods_of_a_job_do_not_go_into_the_record_of_the_next_one_of_its_name(kind: str) -> None:
    informers = InformerFactory(cast(Any, None))
    kinds = {"JobSet": JOBSETS, "TrainJob": TRAINJOBS, "Job": JOBS}
    history = JobHistoryController(informers, kinds, EmptyStore(), keep=timedelta(days=1), clock=lambda: NOW)
    history._jobs[kind]._apply("ADDED", job("first", 0, ended=True))
    history._jobs[kind]._apply("DELETED", job("first", 0, ended=True))
    history._jobs[kind]._apply("ADDED", job("second", 5))
    pod = ended_pod("of-first", 0)
    pod["metadata"]["ownerReferences"][0] |= {"kind": "Job", "uid": UID}
    history._pod_changed("DELETED", pod, None)  # takes long to stop
    assert [uid for uid, _ in history._replicas] == ["first"]
    assert not history._deleted
