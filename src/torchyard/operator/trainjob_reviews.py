"""Admission reviews of TrainJobs and runtimes, with Trainer's rules and messages.

A TrainJob is checked together with its runtime and, when it changes, with its JobSet; both are read for every review.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from datetime import datetime

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.api.trainjob import names, validation
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.trainjob import RUNTIMES
from torchyard.kube.client import Client
from torchyard.operator.admission import answer, parse_review


class TrainJobReviews:
    """Each method answers one AdmissionReview. Raises ValueError if it is not one of its kind."""

    def __init__(self, client: Client, clock: Callable[[], datetime]) -> None:
        self._client, self._clock = client, clock

    async def validate(self, review: Object) -> Object:
        request, response = parse_review(review, names.GROUP, (names.KIND,))
        job, old = request.get("object"), request.get("oldObject")
        if not isinstance(job, dict) or job["metadata"].get("deletionTimestamp"):
            return answer(review, response)
        if not isinstance(job.get("spec"), dict):  # the schema does not require it
            required = field_errors.required("spec", "name the runtime in spec.runtimeRef")
            return answer(review, response | _refusal(names.KIND, job, [required]))
        namespace, jobset = str(request.get("namespace") or ""), None
        runtime = await self._runtime(job, namespace)
        if isinstance(old, dict):
            jobset = await self._client.find(JOBSETS, job["metadata"]["name"], namespace)
        errs = validation.validate(job, runtime, old=old if isinstance(old, dict) else None, jobset=jobset)
        if errs:
            response |= _refusal(names.KIND, job, errs)
        elif runtime is not None and (warnings := validation.warnings(job, runtime)):
            response["warnings"] = warnings
        return answer(review, response)

    async def _runtime(self, job: Object, namespace: str) -> Object | None:
        if not names.is_supported_runtime(job):
            return None
        reference = names.runtime_reference(job)
        return await self._client.find(RUNTIMES[reference["kind"]], reference["name"], namespace)

    def set_defaults(self, review: Object) -> Object:
        """The times of the patches."""
        request, response = parse_review(review, names.GROUP, (names.KIND,))
        job, old = request.get("object"), request.get("oldObject")
        if isinstance(job, dict) and isinstance(job.get("spec"), dict) and job["spec"].get("runtimePatches"):
            stamped = copy.deepcopy(job)
            now = to_rfc3339(self._clock())
            validation.stamp_patches(stamped, old if isinstance(old, dict) else None, now)
            patches = stamped["spec"]["runtimePatches"]
            if patches != job["spec"]["runtimePatches"]:
                patch = orjson.dumps([{"op": "add", "path": "/spec/runtimePatches", "value": patches}])
                response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
        return answer(review, response)


def review_runtime(review: Object) -> Object:
    """Review a TrainingRuntime or a ClusterTrainingRuntime."""
    request, response = parse_review(review, names.GROUP, tuple(names.RUNTIME_PLURALS))
    runtime = request.get("object")
    if isinstance(runtime, dict) and not runtime["metadata"].get("deletionTimestamp"):
        errs = validation.validate_runtime(runtime)
        if errs:
            response |= _refusal(str(request["kind"]["kind"]), runtime, errs)
    return answer(review, response)


def _refusal(kind: str, obj: Object, errs: list[FieldError]) -> Object:
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
    return {"allowed": False, "status": errors.invalid(kind, names.GROUP, name, errs).body()}
