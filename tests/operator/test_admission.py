"""Admission reviews of PyTorchJobs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.support.pytorchjobs import job

from torchyard.api.objects import Object
from torchyard.operator.admission import review_defaults, review_validation


def review(
    obj: Object | None, *, old: Object | None = None, operation: str = "CREATE", kind: str = "PyTorchJob"
) -> Object:
    request = {
        "uid": "u-1",
        "kind": {"group": "kubeflow.org", "version": "v1", "kind": kind},
        "operation": operation,
        "object": obj,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_a_valid_job_is_allowed_with_the_requests_uid() -> None:
    assert review_validation(review(job()))["response"] == {"uid": "u-1", "allowed": True}


def test_an_invalid_job_is_rejected_with_path_and_reason() -> None:
    bad = job()
    bad["spec"]["pytorchReplicaSpecs"]["Boss"] = bad["spec"]["pytorchReplicaSpecs"]["Master"]
    response = review_validation(review(bad))["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert "spec.pytorchReplicaSpecs" in response["status"]["message"]
    assert response["status"]["details"]["causes"]


def test_managed_by_is_immutable() -> None:
    old, new = job(), job()
    old["spec"].setdefault("runPolicy", {})["managedBy"] = "kubeflow.org/training-operator"
    new["spec"].setdefault("runPolicy", {})["managedBy"] = "kueue.x-k8s.io/multikueue"
    response = review_validation(review(new, old=old, operation="UPDATE"))["response"]
    assert response["allowed"] is False and "spec.runPolicy.managedBy" in response["status"]["message"]


def test_an_invalid_terminating_job_can_lose_its_finalizers() -> None:
    bad = job()
    bad["spec"]["pytorchReplicaSpecs"] = {}
    bad["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert review_validation(review(bad, old=bad, operation="UPDATE"))["response"]["allowed"] is True


def test_deprecated_fields_get_warnings() -> None:
    old_fashioned = job()
    old_fashioned["spec"]["elasticPolicy"] = {"nProcPerNode": 2}
    response = review_validation(review(old_fashioned))["response"]
    assert response["allowed"] is True and "deprecated" in response["warnings"][0]


@pytest.mark.parametrize(
    "body", [{}, {"kind": "AdmissionReview"}, {"kind": "Pod", "request": {}}, review(job(), kind="TFJob")]
)
def test_a_body_that_is_not_a_review_of_a_job_is_rejected(body: Object) -> None:
    with pytest.raises(ValueError, match=r"[Rr]eview"):
        review_validation(body)


def queued(**run: Any) -> Object:
    manifest = job(run=run)
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    return manifest


def test_a_new_job_with_a_queue_is_suspended_and_otherwise_unchanged() -> None:
    response = review_defaults(review(queued(backoffLimit=3)), queues=True)["response"]
    assert response["allowed"] is True and response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/runPolicy", "value": {"backoffLimit": 3, "suspend": True}}
    ]


@pytest.mark.parametrize(
    ("admission_review", "queues"),
    [
        (review(queued()), False),
        (review(job()), True),
        (review(queued(managedBy="kueue.x-k8s.io/multikueue")), True),
        (review(queued(), old=queued(), operation="UPDATE"), True),
    ],
    ids=["queues are off", "job without a queue", "job of another manager", "not new"],
)
def test_other_jobs_are_not_changed(admission_review: Object, queues: bool) -> None:
    assert review_defaults(admission_review, queues=queues)["response"] == {"uid": "u-1", "allowed": True}
