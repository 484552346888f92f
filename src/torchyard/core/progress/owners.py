"""The job of a pod, and the rank of the pod in it."""

from __future__ import annotations

from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.trainjob import names as trainjobs
from torchyard.core.progress.reports import JobReference

_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_PODS_PER_JOB = 1_000_000  # more than a Job of a JobSet has pods
# What these print is the progress of a download.
_INITIALIZERS = frozenset(trainjobs.INITIALIZERS.values())


def job_of(pod: Object) -> JobReference | None:
    """The job that a pod belongs to; None for the pods of Deployments and the like, and for initializers."""
    metadata = pod["metadata"]
    owner = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    if owner is None or owner["kind"] not in (pytorchjobs.KIND, "Job"):
        return None
    labels, namespace = metadata.get("labels") or {}, metadata["namespace"]
    jobset = labels.get(jobsets.JOBSET_NAME)
    if owner["kind"] == pytorchjobs.KIND or not jobset:
        return JobReference(owner["kind"], namespace, owner["name"], owner["uid"])
    if any(container["name"] in _INITIALIZERS for container in (pod.get("spec") or {}).get("containers") or ()):
        return None
    return JobReference(jobsets.KIND, namespace, jobset, labels.get(jobsets.JOBSET_UID, ""))


def rank_of(pod: Object) -> int:
    """The place of a pod among those of its job: a master before the workers, then by index."""
    labels = pod["metadata"].get("labels") or {}
    if pytorchjobs.REPLICA_TYPE in labels:
        is_worker: bool = labels[pytorchjobs.REPLICA_TYPE] != pytorchjobs.MASTER.lower()
        return _number(labels.get(pytorchjobs.REPLICA_INDEX)) + is_worker
    return _number(labels.get(jobsets.JOB_GLOBAL_INDEX)) * _PODS_PER_JOB + _number(labels.get(_COMPLETION_INDEX))


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
