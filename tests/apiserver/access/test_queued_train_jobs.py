"""TrainJobs on a plane with queues: those with a queue start suspended, with a patch that the admission fills."""

from __future__ import annotations

import copy

import pytest
from tests.apiserver.access.memory_lister import MemoryLister

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.trainjob import names as trainjob
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import Authorizer

ADMIN = User("admin", groups=("system:masters",))
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
LISTER = MemoryLister(NAMESPACE, *runtimes())
LOCAL_QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
MANAGER = "kueue.x-k8s.io/manager"


def train_job(queue: str = "", **spec: object) -> Object:
    metadata = {"name": "mnist", "namespace": "team", "labels": {names.QUEUE_NAME: queue} if queue else {}}
    fields = {"runtimeRef": {"name": "torch-distributed"}, "managedBy": "trainer.kubeflow.org/trainjob-controller"}
    return {"apiVersion": trainjob.API_VERSION, "kind": trainjob.KIND, "metadata": metadata, "spec": {**fields, **spec}}


def write(new: Object, old: Object | None = None, lister: MemoryLister = LISTER) -> AdmissionAttributes:
    operation: Operation = "CREATE" if old is None else "UPDATE"
    return AdmissionAttributes(operation, trainjob.GROUP, trainjob.PLURAL, "team", "mnist", ADMIN, lister, new, old)


def admitted(job: Object, lister: MemoryLister = LISTER, *, with_queues: bool = True) -> Object:
    admission = BuiltInAdmission(Authorizer(lister), with_queues=with_queues)
    attributes = write(job, lister=lister)
    admission.mutate(attributes)
    admission.validate(attributes)
    return job


def test_a_train_job_with_a_queue_starts_suspended_with_an_empty_patch() -> None:
    spec = admitted(train_job("q"))["spec"]
    assert spec["suspend"] is True
    assert [patch["manager"] for patch in spec["runtimePatches"]] == [MANAGER]
    assert spec["runtimePatches"][0]["time"]
    mine = {"manager": "example.com/me"}
    patches = admitted(train_job("q", runtimePatches=[mine, {"manager": MANAGER}]))["spec"]["runtimePatches"]
    assert [patch["manager"] for patch in patches] == ["example.com/me", MANAGER]


def test_a_train_job_without_a_queue_or_on_a_plane_without_queues_starts_at_once() -> None:
    assert "runtimePatches" not in admitted(train_job())["spec"]
    assert "suspend" not in admitted(train_job("q"), with_queues=False)["spec"]


def test_the_queue_default_takes_train_jobs_without_a_queue() -> None:
    queue = {**LOCAL_QUEUE, "metadata": {"name": "default", "namespace": "team"}}
    job = admitted(train_job(), MemoryLister(NAMESPACE, *runtimes(), queue))
    assert job["metadata"]["labels"][names.QUEUE_NAME] == "default"
    assert job["spec"]["suspend"] is True


def test_the_queue_of_a_running_train_job_cannot_change() -> None:
    admission = BuiltInAdmission(Authorizer(LISTER), with_queues=True)
    for suspended in (False, True):
        old = train_job("q", suspend=suspended)
        new = copy.deepcopy(old)
        new["metadata"]["labels"][names.QUEUE_NAME] = "other"
        if suspended:
            admission.validate(write(new, old))
            continue
        with pytest.raises(StatusError) as refused:
            admission.validate(write(new, old))
        assert f"metadata.labels[{names.QUEUE_NAME}]" in refused.value.message


def test_values_of_wrong_types_are_left_to_the_schema() -> None:
    specs: tuple[object, ...] = ("x", [], None, {"runtimeRef": "x", "runtimePatches": "x"}, {"runtimePatches": ["x"]})
    for spec in specs:
        BuiltInAdmission(Authorizer(LISTER), with_queues=True).mutate(write({**train_job("q"), "spec": spec}))
