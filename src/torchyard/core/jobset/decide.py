"""The decision about a JobSet: one pass, in upstream's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from torchyard.api.conditions import find
from torchyard.api.jobset import messages, names
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, shift
from torchyard.core.events import Event
from torchyard.core.jobset.children import has_host_names, make_claims, make_job, make_service
from torchyard.core.jobset.failure_policy import apply_failure_policy
from torchyard.core.jobset.resume import resumed
from torchyard.core.jobset.startup import dependencies_met, has_started, is_in_order
from torchyard.core.jobset.status import StatusDraft, count_jobs
from torchyard.core.jobset.view import JobSetView, is_suspended, replicated_job_of

# The most Jobs that one pass creates: replicas may be two billion, and the others wait for each pass.
MAX_CREATED_PER_PASS = 500


@dataclass(slots=True)
class JobSetDecision:
    """What to write, in this order; a write that fails ends the pass. Events follow when the status is written."""

    delete_jobs: list[Object] = field(default_factory=list)
    service: Object | None = None
    claims: list[Object] = field(default_factory=list)
    create_jobs: list[Object] = field(default_factory=list)
    suspend: list[Object] = field(default_factory=list)  # Jobs as they are to be
    resume: list[Object] = field(default_factory=list)
    status: Object | None = None
    events: list[Event] = field(default_factory=list)
    delete_jobset: bool = False
    wake_after: float | None = None


def decide(view: JobSetView) -> JobSetDecision:
    decision = JobSetDecision()
    if view.jobset["metadata"].get("deletionTimestamp") or not names.is_managed_here(view.jobset):
        return decision
    draft = StatusDraft(view)
    draft.set_counts(count_jobs(view))
    if draft.is_finished:
        decision.delete_jobs = _present(view.active)
        _expire(view, decision)
    else:
        _advance(view, draft, decision)
    decision.status, decision.events = draft.result, draft.events
    return decision


def _advance(view: JobSetView, draft: StatusDraft, decision: JobSetDecision) -> None:
    decision.delete_jobs = _present(view.previous)
    if view.failed:
        apply_failure_policy(view, draft)
        return
    counts = {entry["name"]: entry for entry in draft.values.get("replicatedJobsStatus") or ()}
    # A restart that a suspension has ended is followed by this, too.
    may_be_ready = draft.is_restarting or not view.is_suspended
    if may_be_ready and all(has_started(job, counts) for job in view.replicated_jobs):
        draft.end_restart(messages.RESTART_READY)
    if view.successful and _has_succeeded(view):
        draft.finish(messages.COMPLETED, messages.ALL_JOBS_COMPLETED)
        return
    if has_host_names(view.spec) and not view.has_service:
        decision.service = make_service(view.jobset)
    decision.claims = [claim for claim in make_claims(view.jobset) if claim["metadata"]["name"] not in view.claims]
    _create_jobs(view, draft, decision)
    if view.is_suspended:
        decision.suspend = [_suspended(job) for job in view.active if not is_suspended(job)]
        draft.end_restart(messages.RESTART_SUSPENDED)
        draft.set_condition(messages.SUSPENDED, messages.IS_SUSPENDED)
    else:
        _resume_jobs(view, draft, decision)


def _present(jobs: tuple[Object, ...]) -> list[Object]:
    return [job for job in jobs if not job["metadata"].get("deletionTimestamp")]


def _suspended(job: Object) -> Object:
    return {**job, "spec": {**job["spec"], "suspend": True}}


def _has_succeeded(view: JobSetView) -> bool:
    policy = view.spec.get("successPolicy") or {"operator": names.ALL}
    targets = policy.get("targetReplicatedJobs") or [job["name"] for job in view.replicated_jobs]
    succeeded = sum(replicated_job_of(job) in targets for job in view.successful)
    if policy["operator"] == names.ANY:
        return succeeded >= 1
    return succeeded >= sum(names.replicas(job) for job in view.replicated_jobs if job["name"] in targets)


def _create_jobs(view: JobSetView, draft: StatusDraft, decision: JobSetDecision) -> None:
    in_order = is_in_order(view.spec) and not view.is_suspended
    counts = {entry["name"]: entry for entry in draft.values.get("replicatedJobsStatus") or ()}
    for replicated_job in view.replicated_jobs:
        if not dependencies_met(replicated_job, view.replicated_jobs, counts):
            continue
        if in_order and has_started(replicated_job, counts):
            continue
        room = MAX_CREATED_PER_PASS - len(decision.create_jobs)
        missing = list(islice(_missing_jobs(view, replicated_job), room + 1))
        decision.create_jobs += missing[:room]
        if len(missing) > room:
            decision.wake_after = 0
            if in_order:
                draft.set_condition(messages.STARTUP_IN_PROGRESS, messages.IN_ORDER_IN_PROGRESS)
            return
        if in_order:  # the next one starts when this one is ready
            draft.set_condition(messages.STARTUP_IN_PROGRESS, messages.IN_ORDER_IN_PROGRESS)
            return
    if in_order:
        draft.set_condition(messages.STARTUP_COMPLETED, messages.IN_ORDER_COMPLETED)


def _missing_jobs(view: JobSetView, replicated_job: Object) -> Iterator[Object]:
    strategy = (view.spec.get("failurePolicy") or {}).get("restartStrategy")
    if view.previous and strategy == names.BLOCKING_RECREATE:
        return
    name, present = view.jobset["metadata"]["name"], view.job_names
    for index in range(names.replicas(replicated_job)):
        if names.job_name(name, replicated_job["name"], index) not in present:
            yield make_job(view.jobset, replicated_job, index)


def _resume_jobs(view: JobSetView, draft: StatusDraft, decision: JobSetDecision) -> None:
    in_order = is_in_order(view.spec)
    counts = {entry["name"]: entry for entry in draft.values.get("replicatedJobsStatus") or ()}
    for replicated_job in view.replicated_jobs:
        if not dependencies_met(replicated_job, view.replicated_jobs, counts):
            continue
        if in_order and has_started(replicated_job, counts):
            continue
        decision.resume += [
            resumed(job, replicated_job)
            for job in view.active
            if replicated_job_of(job) == replicated_job["name"] and is_suspended(job)
        ]
        if in_order:
            draft.set_condition(messages.STARTUP_IN_PROGRESS, messages.IN_ORDER_IN_PROGRESS)
            return
    draft.set_condition(messages.SUSPENDED, messages.IS_RESUMED, status=False)


def _expire(view: JobSetView, decision: JobSetDecision) -> None:
    ttl = view.spec.get("ttlSecondsAfterFinished")
    if ttl is None:
        return
    conditions = (view.jobset.get("status") or {}).get("conditions") or ()
    ended = next(filter(None, (find(conditions, type) for type in messages.TERMINAL)), None)
    if ended is None:
        return
    left = (shift(parse_rfc3339(ended["lastTransitionTime"]), ttl) - view.now).total_seconds()
    if left <= 0:
        decision.delete_jobset = True
    else:
        decision.wake_after = left
