"""Admission reviews of PyTorchJobs and JobSets, with the same rules and messages as on the plane. Pure."""

from __future__ import annotations

import base64
import copy
from typing import NamedTuple

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.jobset import names as jobset
from torchyard.api.jobset.defaults import set_defaults
from torchyard.api.jobset.validation import JobSetStrategy
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.validation import PyTorchJobStrategy
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.api.strategy import Strategy
from torchyard.core.pytorchjob.decide import is_managed_here


class _Kind(NamedTuple):
    group: str
    name: str
    strategy: Strategy


_PYTORCHJOB = _Kind(names.GROUP, names.KIND, PyTorchJobStrategy())
_JOBSET = _Kind(jobset.GROUP, jobset.KIND, JobSetStrategy())


def review_validation(review: Object) -> Object:
    """Review a PyTorchJob. Raises ValueError if `review` is not an AdmissionReview of one."""
    return _review_validation(review, _PYTORCHJOB)


def review_jobset_validation(review: Object) -> Object:
    return _review_validation(review, _JOBSET)


def _review_validation(review: Object, kind: _Kind) -> Object:
    request, response = parse_review(review, kind.group, (kind.name,))
    job = request.get("object")
    if isinstance(job, dict) and request.get("operation") in ("CREATE", "UPDATE"):
        refusal = _validation_error(request, job, kind)
        if refusal is not None:
            response |= {"allowed": False, "status": refusal.body()}
        elif warnings := kind.strategy.warnings(job):
            response["warnings"] = warnings
    return answer(review, response)


def review_defaults(review: Object, *, queues: bool) -> Object:
    """Suspend a new job with a queue, as Kueue's own integrations do, if the operator creates its workload.

    Otherwise its pods would start before its quota is reserved.
    """
    request, response = parse_review(review, _PYTORCHJOB.group, (_PYTORCHJOB.name,))
    job = request.get("object")
    if queues and request.get("operation") == "CREATE" and isinstance(job, dict) and _is_queued(job):
        policy = {**((job.get("spec") or {}).get("runPolicy") or {}), "suspend": True}
        patch = orjson.dumps([{"op": "add", "path": "/spec/runPolicy", "value": policy}])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return answer(review, response)


def review_jobset_defaults(review: Object) -> Object:
    """Set the defaults of a JobSet, which on the plane the API server sets."""
    request, response = parse_review(review, _JOBSET.group, (_JOBSET.name,))
    obj = request.get("object")
    if request.get("operation") in ("CREATE", "UPDATE") and isinstance(obj, dict):
        defaulted = copy.deepcopy(obj)
        set_defaults(defaulted)
        if defaulted != obj:
            patch = orjson.dumps([{"op": "add", "path": "/spec", "value": defaulted["spec"]}])
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return answer(review, response)


def _is_queued(job: Object) -> bool:
    return QUEUE_NAME in (job["metadata"].get("labels") or {}) and is_managed_here(job)


def parse_review(review: Object, group: str, kinds: tuple[str, ...]) -> tuple[Object, Object]:
    """The request, and a response that allows it. Raises ValueError if the review is of another kind."""
    request = review.get("request")
    if review.get("kind") != "AdmissionReview" or not isinstance(request, dict):
        raise ValueError("the body is not an AdmissionReview with a request")
    kind = request.get("kind") or {}
    if kind.get("group") != group or kind.get("kind") not in kinds:
        raise ValueError(f"this webhook reviews {' and '.join(kinds)} of {group}, not {kind.get('kind')!r}")
    return request, {"uid": request.get("uid", ""), "allowed": True}


def answer(review: Object, response: Object) -> Object:
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}


def _validation_error(request: Object, job: Object, kind: _Kind) -> StatusError | None:
    # A terminating job only loses finalizers; a rejection would keep it forever.
    if job["metadata"].get("deletionTimestamp"):
        return None
    old = request.get("oldObject")
    is_update = request.get("operation") == "UPDATE" and isinstance(old, dict)
    strategy = kind.strategy
    errs = strategy.validate_update(job, old) if is_update and isinstance(old, dict) else strategy.validate(job)
    if not errs:
        return None
    name = job["metadata"].get("name") or job["metadata"].get("generateName", "")
    return errors.invalid(kind.name, kind.group, name, errs)
