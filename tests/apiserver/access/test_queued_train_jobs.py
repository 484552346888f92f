"""TrainJobs on a plane with queues: refused with a queue, warned about where a default queue takes all other jobs."""

from __future__ import annotations

import copy

import pytest
from tests.apiserver.access.memory_lister import MemoryLister

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.api.trainjob import names as trainjob
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import Authorizer

ADMIN = User("admin", groups=("system:masters",))
LISTER = MemoryLister(*runtimes())
LOCAL_QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}


def train_job(queue: str = "") -> Object:
    metadata = {"name": "mnist", "namespace": "team", "labels": {names.QUEUE_NAME: queue} if queue else {}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "managedBy": "trainer.kubeflow.org/trainjob-controller"}
    return {"apiVersion": trainjob.API_VERSION, "kind": trainjob.KIND, "metadata": metadata, "spec": spec}


def write(new: Object, old: Object | None = None, lister: MemoryLister = LISTER) -> AdmissionAttributes:
    operation: Operation = "CREATE" if old is None else "UPDATE"
    return AdmissionAttributes(operation, trainjob.GROUP, trainjob.PLURAL, "team", "mnist", ADMIN, lister, new, old)


def admission(*, with_queues: bool = True) -> BuiltInAdmission:
    return BuiltInAdmission(Authorizer(LISTER), with_queues=with_queues)


def test_a_train_job_with_a_queue_is_refused() -> None:
    for old in (None, train_job(), train_job("other")):
        with pytest.raises(StatusError) as refused:
            admission().validate(write(train_job("q"), old))
        assert refused.value.status == 422
        assert f'metadata.labels[{names.QUEUE_NAME}]: Invalid value: "q": ' in refused.value.message
        assert messages.TRAIN_JOB_NOT_QUEUED in refused.value.message


def test_a_train_job_without_a_queue_or_with_one_that_is_stored_is_accepted() -> None:
    admission().validate(write(train_job()))
    admission().validate(write(train_job(), train_job("q")))
    changed = copy.deepcopy(train_job("q"))
    changed["metadata"]["annotations"] = {"a": "b"}
    admission().validate(write(changed, train_job("q")))
    admission(with_queues=False).validate(write(train_job("q")))


def test_values_of_wrong_types_are_left_to_the_schema() -> None:
    specs: tuple[object, ...] = ("x", [], None, {"runtimeRef": "x"}, {"runtimeRef": []})
    for spec in specs:
        assert admission().warnings(write({**train_job(), "spec": spec})) == []
    with pytest.raises(StatusError, match="spec: Required value"):
        admission().validate(write({**train_job(), "spec": None}))


def test_a_default_queue_that_does_not_take_the_train_job_is_named_in_a_warning() -> None:
    queue = {**LOCAL_QUEUE, "metadata": {"name": "default", "namespace": "team"}}
    own = {**LOCAL_QUEUE, "metadata": {"name": "default", "namespace": "team", "labels": {names.LOCAL: "true"}}}
    for stored, expected in ((queue, [messages.TRAIN_JOB_BYPASSES_QUEUE]), (own, [])):
        lister = MemoryLister(*runtimes(), stored)
        assert admission().warnings(write(train_job(), lister=lister)) == expected
        assert admission().warnings(write(train_job(), train_job(), lister=lister)) == []
        assert admission(with_queues=False).warnings(write(train_job(), lister=lister)) == []
