"""Which record the pods of a job go into."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.controllers.job_history import JobHistoryController
from torchyard.controllers.queue.gvr import JOBSETS, TRAINJOBS
from torchyard.core.run.record import ReplicaRecord, RunRecord
from torchyard.kube.informer_factory import InformerFactory

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)


class EmptyStore:
    def uids(self) -> set[str]:
        return set()

    def write(self, records: list[RunRecord], replicas: list[tuple[str, ReplicaRecord]]) -> None: ...

    def prune(self, before: datetime) -> None: ...


def job(uid: str, minute: int, *, ended: bool = False) -> Object:
    created = f"2026-01-01T12:{minute:02}:00Z"
    conditions = [{"type": state, "status": "True"} for state in ("Complete", "Completed")] if ended else []
    metadata = {"name": "t", "namespace": "team", "uid": uid, "creationTimestamp": created}
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
