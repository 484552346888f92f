"""What a failed Job means: the first matching rule of the failure policy decides; without a policy the JobSet fails."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from torchyard.api.jobset import messages, names
from torchyard.api.objects import Object
from torchyard.core.jobset.status import StatusDraft
from torchyard.core.jobset.view import FAILED, JobSetView, job_index_of, replicated_job_of

# The status counts the restarts of each Job in a list, and an object has a maximum size.
_MAX_LISTED = 100_000


def apply_failure_policy(view: JobSetView, draft: StatusDraft) -> None:
    policy = view.spec.get("failurePolicy")
    if policy is None:
        reason, message = messages.FAILED_JOBS
        first = messages.with_first_failed_job(message, _first_failed(view.failed)["metadata"]["name"])
        draft.finish(messages.FAILED, (reason, first))
        return
    action, cause, job = _matching_action(policy, view.failed)
    name = job["metadata"]["name"]
    reason, message = messages.action(action)
    if action == names.FAIL_JOBSET:
        draft.finish(messages.FAILED, (reason, messages.with_first_failed_job(message, name)))
        return
    counts = action in (names.RESTART_JOBSET, names.RESTART_JOB)
    if counts and _counted_restarts(draft.values) >= (policy.get("maxRestarts") or 0):
        reason, message = messages.REACHED_MAX_RESTARTS
        draft.finish(messages.FAILED, (reason, messages.with_first_failed_job(message, name)))
        return
    if action in (names.RESTART_JOB, names.RESTART_JOB_FREE):
        _restart_job(view, draft, job, counts=counts)
    else:
        _restart_jobset(draft, counts=counts)
        restarting = cause, messages.with_first_failed_job(message, name)
        draft.set_condition(messages.RESTARTING, restarting, warning=True)
    draft.warn(reason, messages.with_first_failed_job(message, name))


def _restart_jobset(draft: StatusDraft, *, counts: bool) -> None:
    values = draft.values
    values["restarts"] = (values.get("restarts") or 0) + 1
    if counts:
        values["restartsCountTowardsMax"] = (values.get("restartsCountTowardsMax") or 0) + 1


def _restart_job(view: JobSetView, draft: StatusDraft, job: Object, *, counts: bool) -> None:
    name, index = replicated_job_of(job), job_index_of(job)
    replicas = {each["name"]: names.replicas(each) for each in view.replicated_jobs}
    listed = min(replicas.get(name, 0), _MAX_LISTED)
    if index >= listed:  # another client changed its labels, or the status cannot count this Job
        _restart_jobset(draft, counts=counts)
        return
    entry = next(entry for entry in draft.values["replicatedJobsStatus"] if entry["name"] == name)
    counters = ("jobRestarts", "jobRestartsCountTowardsMax") if counts else ("jobRestarts",)
    for counter in counters:
        values = list(entry.get(counter) or [0] * listed)
        values[index] += 1
        entry[counter] = values


def _counted_restarts(status: Object) -> int:
    single = (entry.get("jobRestartsCountTowardsMax") or () for entry in status.get("replicatedJobsStatus") or ())
    return int(status.get("restartsCountTowardsMax") or 0) + sum(sum(counts) for counts in single)


def _matching_action(policy: Object, failed: Iterable[Object]) -> tuple[str, str, Object]:
    """The action of the first rule that matches a failed Job, its reason, and the first failed Job of that rule."""
    for rule in policy.get("rules") or ():
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            return str(rule["action"]), messages.failure_policy_rule(rule["name"]), _first_failed(matching)
    return names.RESTART_JOBSET, messages.DEFAULT_FAILURE_POLICY, _first_failed(failed)


def _matches(rule: Object, job: Object) -> bool:
    condition = _failure(job)
    reasons = rule.get("onJobFailureReasons") or ()
    patterns = rule.get("onJobFailureMessagePatterns") or ()
    targets = rule.get("targetReplicatedJobs") or ()
    return (
        (not reasons or condition.get("reason", "") in reasons)
        and (not patterns or any(_found(pattern, condition.get("message", "")) for pattern in patterns))
        and (not targets or replicated_job_of(job) in targets)
    )


def _found(pattern: str, message: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is not None and compiled.search(message) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """The pattern in Go's syntax; None if it does not parse: upstream accepts it and it never matches."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error:
        return None


def _first_failed(jobs: Iterable[Object]) -> Object:
    return min(jobs, key=lambda job: str(_failure(job).get("lastTransitionTime", "")))


def _failure(job: Object) -> Object:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == FAILED and each["status"] == "True"), {})
