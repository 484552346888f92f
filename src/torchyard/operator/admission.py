"""Admission reviews of PyTorchJobs, with the same rules and messages as on the plane. Pure."""

from __future__ import annotations

import base64

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.validation import PyTorchJobStrategy
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.core.pytorchjob.decide import is_managed_here

_STRATEGY = PyTorchJobStrategy()


def review_validation(review: Object) -> Object:
    """Review a job. Raises ValueError if `review` is not an AdmissionReview of a PyTorchJob."""
    request, response = _parse_review(review)
    job = request.get("object")
    if isinstance(job, dict) and request.get("operation") in ("CREATE", "UPDATE"):
        refusal = _validation_error(request, job)
        if refusal is not None:
            response |= {"allowed": False, "status": refusal.body()}
        elif warnings := _STRATEGY.warnings(job):
            response["warnings"] = warnings
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}


def review_defaults(review: Object, *, queues: bool) -> Object:
    """Suspend a new job with a queue, as Kueue's own integrations do, if the operator creates its workload.

    Otherwise its pods would start before its quota is reserved.
    """
    request, response = _parse_review(review)
    job = request.get("object")
    if queues and request.get("operation") == "CREATE" and isinstance(job, dict) and _is_queued(job):
        policy = {**((job.get("spec") or {}).get("runPolicy") or {}), "suspend": True}
        patch = orjson.dumps([{"op": "add", "path": "/spec/runPolicy", "value": policy}])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}


def _is_queued(job: Object) -> bool:
    return QUEUE_NAME in (job["metadata"].get("labels") or {}) and is_managed_here(job)


def _parse_review(review: Object) -> tuple[Object, Object]:
    """The request, and a response that allows it."""
    request = review.get("request")
    if review.get("kind") != "AdmissionReview" or not isinstance(request, dict):
        raise ValueError("the body is not an AdmissionReview with a request")
    kind = request.get("kind") or {}
    if (kind.get("group"), kind.get("kind")) != (names.GROUP, names.KIND):
        raise ValueError(f"this webhook reviews {names.KIND} of {names.GROUP}, not {kind.get('kind')!r}")
    return request, {"uid": request.get("uid", ""), "allowed": True}


def _validation_error(request: Object, job: Object) -> StatusError | None:
    # A terminating job only loses finalizers; a rejection would keep it forever.
    if job["metadata"].get("deletionTimestamp"):
        return None
    old = request.get("oldObject")
    is_update = request.get("operation") == "UPDATE" and isinstance(old, dict)
    errs = _STRATEGY.validate_update(job, old) if is_update and isinstance(old, dict) else _STRATEGY.validate(job)
    if not errs:
        return None
    name = job["metadata"].get("name") or job["metadata"].get("generateName", "")
    return errors.invalid(names.KIND, names.GROUP, name, errs)
