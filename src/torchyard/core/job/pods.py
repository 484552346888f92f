"""The pod of a Job: from its template, with the tracking finalizer and, for Indexed jobs, the completion index."""

from __future__ import annotations

from torchyard.api.job import labels
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.core.job import policies
from torchyard.core.job.view import JobView, number

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58  # The longest prefix of a generated name; five random characters follow.


def owner_reference(job: Object) -> Object:
    return controller_reference(job, "batch/v1", "Job")


def make_pod(view: JobView, index: int | None = None, replaced: Object | None = None) -> Object:
    """`replaced` is the failed pod of the same index, whose failure count continues."""
    template = view.spec["template"]
    template_metadata = template.get("metadata") or {}
    finalizers = list(template_metadata.get("finalizers") or ())
    if labels.TRACKING_FINALIZER not in finalizers:
        finalizers.append(labels.TRACKING_FINALIZER)
    metadata: Object = {
        "generateName": f"{view.name}-",
        "namespace": view.namespace,
        "labels": dict(template_metadata.get("labels") or {}),
        "annotations": dict(template_metadata.get("annotations") or {}),
        "finalizers": finalizers,
        "ownerReferences": [owner_reference(view.job)],
    }
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template["spec"])}
    if index is not None:
        _mark_index(view, pod, index)
        if view.limit_per_index is not None:
            metadata["annotations"] |= _failure_counts(view, replaced)
    return pod


def _mark_index(view: JobView, pod: Object, index: int) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    suffix = f"-{index}-"
    metadata["generateName"] = view.name[: _LONGEST_PREFIX - len(suffix)] + suffix
    metadata["labels"][labels.COMPLETION_INDEX] = str(index)
    metadata["annotations"][labels.COMPLETION_INDEX] = str(index)
    spec["hostname"] = f"{view.name}-{index}"
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_with_index(container) for container in spec[kind]]


def _with_index(container: Object) -> Object:
    environment = list(container.get("env") or ())
    if any(variable["name"] == INDEX_VARIABLE for variable in environment):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{labels.COMPLETION_INDEX}']"}}
    return {**container, "env": [*environment, {"name": INDEX_VARIABLE, "valueFrom": source}]}


def _failure_counts(view: JobView, replaced: Object | None) -> dict[str, str]:
    if replaced is None:
        return {labels.INDEX_FAILURE_COUNT: "0"}
    counted = number(replaced, labels.INDEX_FAILURE_COUNT)
    ignored = number(replaced, labels.INDEX_IGNORED_FAILURE_COUNT)
    if policies.match_failure_policy(view, replaced).counts:
        counted += 1
    else:
        ignored += 1
    annotations = {labels.INDEX_FAILURE_COUNT: str(counted)}
    return {**annotations, labels.INDEX_IGNORED_FAILURE_COUNT: str(ignored)} if ignored else annotations


def failure_count(pod: Object) -> int:
    """How often the index of a failed pod had failed before, ignored failures included."""
    return number(pod, labels.INDEX_FAILURE_COUNT) + number(pod, labels.INDEX_IGNORED_FAILURE_COUNT)
