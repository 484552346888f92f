"""The status of a TrainJob: conditions, counts of the replicated jobs, and the state that `kubectl get` shows."""

from __future__ import annotations

from torchyard.api import conditions
from torchyard.api.objects import Object
from torchyard.api.progress import TEXT_FIELD, TRAINER_STATUS
from torchyard.api.times import to_rfc3339
from torchyard.api.trainjob import messages, names
from torchyard.core.trainjob.view import TrainJobView

_COUNTS = ("name", "ready", "succeeded", "failed", "active", "suspended")


def is_finished(job: Object) -> bool:
    return any(conditions.has_true_condition(job, ended) for ended in messages.TERMINAL)


def differs_only_in_progress(job: Object, before: Object) -> bool:
    """Whether nothing else has changed, the server's own metadata apart."""
    return _without_progress(job) == _without_progress(before)


def _without_progress(job: Object) -> tuple[Object, Object, Object | None]:
    metadata, status = job["metadata"], job.get("status") or {}
    return (
        {field: value for field, value in metadata.items() if field not in ("resourceVersion", "managedFields")},
        {field: value for field, value in status.items() if field not in (TRAINER_STATUS, TEXT_FIELD)},
        job.get("spec"),
    )


def next_status(view: TrainJobView, *, past_deadline: bool) -> Object:
    """The status without the progress, which others write.

    A job that runs has no condition: the SDK calls a job Running only then. So `Suspended` goes when a job is resumed.
    """
    status = view.job.get("status") or {}
    listed: list[Object] = list(status.get("conditions") or ())
    now = to_rfc3339(view.now)

    def add(type: str, status: bool, reason: str, message: str) -> None:
        listed[:] = conditions.with_condition(listed, type, status, reason=reason, message=message, now=now)

    def drop(type: str) -> None:
        listed[:] = [condition for condition in listed if condition["type"] != type]

    if not names.is_supported_runtime(view.job):
        add(
            messages.FAILED,
            True,
            messages.RUNTIME_NOT_SUPPORTED,
            messages.unsupported_runtime(names.runtime_key(view.job)),
        )
    if view.not_made:
        add(messages.RESOURCES_CREATED, False, messages.NOT_MADE, view.not_made)
    else:
        drop(messages.RESOURCES_CREATED)
    if view.is_suspended:
        add(messages.SUSPENDED, True, messages.IS_SUSPENDED, messages.SUSPENDED_MESSAGE)
    else:
        drop(messages.SUSPENDED)
    ended = _ended(view)
    if ended is not None:
        add(ended[0], True, ended[1], ended[2])
    elif past_deadline:
        add(messages.FAILED, True, messages.PAST_DEADLINE, messages.DEADLINE_MESSAGE)
    result: Object = {"conditions": listed}
    if view.is_being_resumed:
        result["resumeTime"] = now
    counts = _counts(view, status)
    if past_deadline and ended is None:
        result["jobsStatus"] = None  # the JobSet is deleted with its pods
    elif counts:
        result["jobsStatus"] = counts
    result["state"] = _state(view, listed, counts)
    return result


def final_counts(view: TrainJobView) -> Object | None:
    """What changes in the status of a finished job: pods that were left over go. None: nothing."""
    before = (view.job.get("status") or {}).get("jobsStatus") or []
    counts = _counts(view, view.job["status"])
    return {"jobsStatus": counts} if counts and counts != before else None


def _ended(view: TrainJobView) -> tuple[str, str, str] | None:
    for condition in ((view.jobset or {}).get("status") or {}).get("conditions") or ():
        if condition["status"] != "True":
            continue
        if condition["type"] == "Completed":
            return messages.COMPLETE, condition["reason"], condition["message"]
        if condition["type"] == "Failed":
            return messages.FAILED, condition["reason"], _with_failure(view, condition["message"])
    return None


def _with_failure(view: TrainJobView, message: str) -> str:
    if view.failure is None:
        return message
    failed = view.failure.container
    log = view.failure.log or failed.message
    return messages.node_failed(message, failed.pod, failed.container, failed.exit_code, log)


def _counts(view: TrainJobView, status: Object) -> list[Object]:
    """The counts of the JobSet; those of before if it is gone."""
    if view.jobset is None:
        before: list[Object] = status.get("jobsStatus") or []
        return before
    listed = (view.jobset.get("status") or {}).get("replicatedJobsStatus") or ()
    return [{name: each.get(name, 0) for name in _COUNTS} for each in listed]


def _state(view: TrainJobView, listed: list[Object], counts: list[Object]) -> str:
    for ended in messages.TERMINAL:
        if conditions.is_true(listed, ended):
            return ended
    if view.is_suspended:
        return messages.SUSPENDED
    return messages.RUNNING if any(each["ready"] for each in counts) else messages.CREATED
