"""What Kueue's webhooks check in the labels and annotations of queued jobs and pods.

On an update only values that change are checked, so that an object that was stored before can still be changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchyard.api import field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.queue import configuration_messages, job_messages, names
from torchyard.api.queue.unsupported import TOPOLOGY_ANNOTATIONS

_is_integer = re.compile("[+-]?[0-9]{1,10}").fullmatch
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # Go's ParseBool
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def label(name: str) -> str:
    return f"metadata.labels[{name}]"


def annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def validate_job(kind: str, job: Object, old: Object | None, *, is_running: bool) -> Iterator[FieldError]:
    """`is_running`: the old object is not suspended; a pod: not gated."""
    labels, old_labels = _values(job, "labels"), _values(old, "labels")
    changed = {name: value for name, value in labels.items() if old_labels.get(name) != value}
    if changed.get(names.QUEUE_NAME) == "":
        yield field_errors.invalid(label(names.QUEUE_NAME), "", job_messages.EMPTY_QUEUE)
    if old is not None and old_labels.get(names.QUEUE_NAME):
        yield from _validate_fixed(kind, labels, old_labels, is_running=is_running)
    if not labels.get(names.QUEUE_NAME):
        return
    limit = changed.get(names.MAX_SECONDS)
    if limit is not None and _integer(limit) < 1:
        yield field_errors.invalid(label(names.MAX_SECONDS), limit, job_messages.MAX_SECONDS_HINT)
    if changed.get(names.PREBUILT_WORKLOAD):
        yield field_errors.forbidden(label(names.PREBUILT_WORKLOAD), configuration_messages.PREBUILT_UNSUPPORTED)
    annotations, old_annotations = _values(job, "annotations"), _values(old, "annotations")
    if kind == "Pod" and old is None:
        yield from _validate_pod(labels, annotations)
    elif kind == "Job":
        added = {name: value for name, value in annotations.items() if old_annotations.get(name) != value}
        yield from _validate_partial_admission(job.get("spec") or {}, added)


def _validate_fixed(kind: str, labels: Object, old: Object, *, is_running: bool) -> Iterator[FieldError]:
    """Labels of a queued job that cannot change, at all or while it runs."""
    fixed = (names.QUEUE_NAME, names.MAX_SECONDS) if is_running else ()
    if kind == "Deployment" and not is_running and names.QUEUE_NAME not in labels:
        yield field_errors.invalid(label(names.QUEUE_NAME), None, any_names.IMMUTABLE)  # its template keeps the queue
    for name in fixed:
        if labels.get(name) != old.get(name):
            detail = f"{any_names.IMMUTABLE} {job_messages.IMMUTABLE_WHILE_RUNNING}"
            yield field_errors.invalid(label(name), labels.get(name), detail)
    if kind == "Pod" and labels.get(names.POD_GROUP) != old.get(names.POD_GROUP):
        yield field_errors.invalid(label(names.POD_GROUP), labels.get(names.POD_GROUP), any_names.IMMUTABLE)
    before, after = old.get(names.PRIORITY), labels.get(names.PRIORITY)
    if before and not after and labels.get(names.QUEUE_NAME):
        yield field_errors.invalid(label(names.PRIORITY), after, job_messages.PRIORITY_CLASS_REMOVED)
    elif after and not before and is_running:
        yield field_errors.invalid(label(names.PRIORITY), after, job_messages.PRIORITY_CLASS_ADDED)


def _validate_pod(labels: Object, annotations: Object) -> Iterator[FieldError]:
    group, size = labels.get(names.POD_GROUP), annotations.get(names.POD_GROUP_SIZE)
    if not group and size is not None:
        yield field_errors.required(label(names.POD_GROUP), job_messages.POD_GROUP_INCOMPLETE)
    elif group and size is None:
        yield field_errors.required(annotation(names.POD_GROUP_SIZE), job_messages.POD_GROUP_INCOMPLETE)
    elif size is not None and _integer(size) < 1:
        yield field_errors.invalid(annotation(names.POD_GROUP_SIZE), size, job_messages.POD_GROUP_SIZE_HINT)
    for problem in any_names.subdomain_problems(group) if group else ():
        yield field_errors.invalid(label(names.POD_GROUP), group, problem)
    for name in TOPOLOGY_ANNOTATIONS:
        if name in annotations:
            yield field_errors.forbidden(annotation(name), configuration_messages.TOPOLOGIES_UNSUPPORTED)
    if annotations.get(names.ELASTIC) == "true":
        yield field_errors.forbidden(annotation(names.ELASTIC), job_messages.ELASTIC_ONLY_BATCH_JOBS)


def _validate_partial_admission(spec: Object, annotations: Object) -> Iterator[FieldError]:
    parallelism = spec.get("parallelism", 1)
    least = annotations.get(names.MIN_PARALLELISM)
    if least is not None and not 0 < _integer(least) < parallelism:
        detail = job_messages.min_parallelism_hint(parallelism)
        yield field_errors.invalid(annotation(names.MIN_PARALLELISM), least, detail)
    synced = annotations.get(names.SYNC_COMPLETIONS)
    if synced is None or synced in _FALSE:
        return
    if synced not in _TRUE:
        yield field_errors.invalid(annotation(names.SYNC_COMPLETIONS), synced, job_messages.NOT_A_BOOLEAN)
        return
    if spec.get("completionMode", "NonIndexed") != "Indexed":
        yield field_errors.invalid(annotation(names.SYNC_COMPLETIONS), synced, job_messages.SYNC_NEEDS_INDEXES)
    if spec.get("completions") != parallelism:
        yield field_errors.invalid("spec.completions", spec.get("completions"), job_messages.SYNC_NEEDS_EQUAL_COUNTS)


def syncs_completions(annotations: Object) -> bool:
    """Whether a job that starts with fewer pods also needs fewer completions."""
    return annotations.get(names.SYNC_COMPLETIONS) in _TRUE


def _integer(text: str) -> int:
    """Its value; -1 if it is no integer."""
    return int(text) if _is_integer(text) else -1


def _values(obj: Object | None, field: str) -> Object:
    values: Object = ((obj or {}).get("metadata") or {}).get(field) or {}
    return values
