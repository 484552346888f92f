"""What Trainer's webhooks do to TrainJobs: the time of each patch, and the rules that need the runtime of a job."""

from __future__ import annotations

from datetime import datetime

from torchyard.api import errors, field_errors
from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.api.trainjob import names, validation
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

RESOURCES = (names.PLURAL,)


def _is_train_job(attributes: AdmissionAttributes) -> bool:
    return attributes.is_for(names.PLURAL, names.GROUP, operations=("CREATE", "UPDATE"))


def stamp_patches(attributes: AdmissionAttributes, now: datetime) -> None:
    if _is_train_job(attributes) and isinstance(attributes.new.get("spec"), dict):
        validation.stamp_patches(attributes.new, attributes.old, to_rfc3339(now))


def check_train_job(attributes: AdmissionAttributes) -> None:
    """Reject a job that does not fit its runtime. A terminating job may always lose its finalizers."""
    if not _is_train_job(attributes) or attributes.new["metadata"].get("deletionTimestamp"):
        return
    if not isinstance(attributes.new.get("spec"), dict):  # the schema does not require it
        err = field_errors.required("spec", "name the runtime in spec.runtimeRef")
        raise errors.invalid(names.KIND, names.GROUP, attributes.display_name, [err])
    jobset = None
    if attributes.old is not None:
        jobset = attributes.lister.get(jobsets.GROUP, jobsets.PLURAL, attributes.namespace, attributes.name)
    errs = validation.validate(attributes.new, _runtime(attributes), old=attributes.old, jobset=jobset)
    if errs:
        raise errors.invalid(names.KIND, names.GROUP, attributes.display_name, errs)


def warnings(attributes: AdmissionAttributes) -> list[str]:
    if not _is_train_job(attributes):
        return []
    runtime = _runtime(attributes)
    return validation.warnings(attributes.new, runtime) if runtime is not None else []


def _runtime(attributes: AdmissionAttributes) -> Object | None:
    reference = names.runtime_reference(attributes.new)
    plural = names.RUNTIME_PLURALS.get(reference["kind"])
    if plural is None or not isinstance(reference.get("name"), str):
        return None
    namespace = attributes.namespace if reference["kind"] == names.RUNTIME_KIND else ""
    return attributes.lister.get(names.GROUP, plural, namespace, reference["name"])
