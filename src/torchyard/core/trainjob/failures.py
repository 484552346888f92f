"""Which failures of pods explain the failure of a TrainJob: those of its JobSet's current attempt."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.jobset.view import is_previous
from torchyard.core.training.failures import FailedContainer, container_failures

Attempt = tuple[object, ...]


def attempt_of(job: Object, jobset: Object) -> Attempt:
    """Another value after each restart, each resumption, and for another JobSet."""
    status = jobset.get("status") or {}
    single = [tuple(each.get("jobRestarts") or ()) for each in status.get("replicatedJobsStatus") or ()]
    return jobset["metadata"]["uid"], status.get("restarts") or 0, tuple(single), _resumed(job)


def failures_of(job: Object, jobset: Object, pods: Iterable[Object]) -> list[FailedContainer]:
    """The failures of the current attempt. A restart in place keeps the pods and their labels."""
    policy = jobset["spec"].get("failurePolicy") or {}
    in_place = policy.get("restartStrategy") == jobsets.IN_PLACE_RESTART
    return [
        failure
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(jobsets.JOBSET_UID) == jobset["metadata"]["uid"]
        and (in_place or not is_previous(jobset, pod))
        for failure in container_failures(pod)
        if not _is_before(failure.finished, _resumed(job))
    ]


def _resumed(job: Object) -> str:
    return str((job.get("status") or {}).get("resumeTime") or "")


def _is_before(time: str, other: str) -> bool:
    return bool(time and other) and parse_rfc3339(time) < parse_rfc3339(other)
