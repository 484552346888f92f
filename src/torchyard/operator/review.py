"""Admission reviews of PyTorchJobs: the same rules, in the same words, as on the one-machine plane. Pure."""

from __future__ import annotations

from typing import Any

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.validation import PyTorchJobBehaviour

Object = dict[str, Any]
_RULES = PyTorchJobBehaviour()


def answer(review: Object) -> Object:
    """The AdmissionReview to send back. Raises ValueError for what is no review of a PyTorchJob."""
    request = review.get("request")
    if review.get("kind") != "AdmissionReview" or not isinstance(request, dict):
        raise ValueError("the body is no AdmissionReview with a request")
    kind = request.get("kind") or {}
    if (kind.get("group"), kind.get("kind")) != (names.GROUP, names.KIND):
        raise ValueError(f"only {names.KIND} of {names.GROUP} is reviewed here, not {kind.get('kind')!r}")
    response: Object = {"uid": request.get("uid", ""), "allowed": True}
    job = request.get("object")
    if isinstance(job, dict) and request.get("operation") in ("CREATE", "UPDATE"):
        refusal = _refusal(request, job)
        if refusal is not None:
            response |= {"allowed": False, "status": refusal.body()}
        elif warnings := _RULES.warnings(job):
            response["warnings"] = warnings
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}


def _refusal(request: Object, job: Object) -> StatusError | None:
    # A job that goes only loses finalizers; refusing that would keep it for ever.
    if job["metadata"].get("deletionTimestamp"):
        return None
    old = request.get("oldObject")
    is_update = request.get("operation") == "UPDATE" and isinstance(old, dict)
    found = _RULES.validate_update(job, old) if is_update and isinstance(old, dict) else _RULES.validate(job)
    if not found:
        return None
    name = job["metadata"].get("name") or job["metadata"].get("generateName", "")
    return errors.invalid(names.KIND, names.GROUP, name, found)
