"""What to do about a Job. One pass decides everything; the controller only applies the decision.

A finished pod is counted in three steps, so that a crash between two of them loses nothing: its uid (or index) is
written to the status, the pod loses its finalizer, and the next pass moves the uid into a counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchyard.api.job import labels, messages
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_restarts, phase
from torchyard.core.events import Event
from torchyard.core.job import indexes, policies
from torchyard.core.job.backoff import NO_FAILURES, Backoff
from torchyard.core.job.counts import Counts
from torchyard.core.job.pod_plan import PodDeletion, PodPlan
from torchyard.core.job.status import JobStatus
from torchyard.core.job.view import JobView, is_tracked, uid

# The most uids that a status holds. A pass creates or deletes at most as many pods.
MOST_UNCOUNTED = 500


class FinishedCondition(NamedTuple):
    kind: str  # the condition that is set before the last pod is gone
    reason: str
    message: str

    @property
    def is_failure(self) -> bool:
        return self.kind == messages.FAILURE_TARGET


@dataclass(slots=True)
class JobDecision:
    """In the order in which it is applied: pods, status, finalizers. Events describe the status."""

    delete: list[PodDeletion] = field(default_factory=list)
    create: list[Object] = field(default_factory=list)
    status: Object | None = None  # None: no change
    release: list[Object] = field(default_factory=list)  # pods that lose the job's finalizer
    events: list[Event] = field(default_factory=list)
    backoff: Backoff = NO_FAILURES
    wake_after: float | None = None  # seconds

    def wake(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)
        self.wake_after = seconds if self.wake_after is None else min(self.wake_after, seconds)


def is_managed_here(job: Object) -> bool:
    return job["spec"].get("managedBy") in (None, labels.MANAGED_BY_JOB_CONTROLLER)


def decide(view: JobView) -> JobDecision:
    if not is_managed_here(view.job):
        return JobDecision()
    status = JobStatus(view.status, view.now)
    if status.is_finished:
        return JobDecision(release=[pod for pod in view.pods if is_tracked(pod)])
    sync = _JobSync(view, status)
    sync.run()
    new_status = status.object()
    if new_status != view.status:
        sync.decision.status = new_status
    return sync.decision


class _JobSync:
    """One pass over one job. Methods fill the decision and the status."""

    def __init__(self, view: JobView, status: JobStatus) -> None:
        self.view, self.status = view, status
        self.decision = JobDecision()
        self.counts = Counts.of(view, status)
        self.decision.backoff = view.backoff.after(self.counts.new_succeeded, self.counts.new_failed)
        self.pod_plan = PodPlan(view, self.counts, self.decision.backoff)

    def run(self) -> None:
        view, status, pod_plan = self.view, self.status, self.pod_plan
        if not view.is_suspended and status.start_time is None:
            status.start()
        ending = self._ending()
        if ending is not None:
            pod_plan.delete_all()
        else:
            if not is_terminating(view.job):
                pod_plan.sync()
            if self._is_complete():
                ending = FinishedCondition(
                    messages.SUCCESS_CRITERIA_MET, messages.COMPLETIONS_REACHED, messages.REACHED
                )
            elif not is_terminating(view.job):
                self._sync_suspension()
        self.decision.create, self.decision.delete = pod_plan.create, pod_plan.delete
        if pod_plan.retry_after is not None:
            self.decision.wake(pod_plan.retry_after)
        status.active, status.ready, status.terminating = pod_plan.active, pod_plan.ready, pod_plan.terminating
        self._account(ending)
        if ending is not None:
            if status.start_time is None:  # suspended before its first status was written, and its pods finished it
                status.start()
            self._end(ending)

    def _ending(self) -> FinishedCondition | None:
        """The condition that finishes the job, by upstream's order: earlier decision, failures, success policy."""
        view, counts, status = self.view, self.counts, self.status
        for kind in (messages.SUCCESS_CRITERIA_MET, messages.FAILURE_TARGET):
            decided = status.condition(kind)
            if decided is not None:
                return FinishedCondition(kind, decided.get("reason", ""), decided.get("message", ""))
        failure = self._failure()
        if failure is not None:
            return FinishedCondition(messages.FAILURE_TARGET, *failure)
        rule = policies.match_success_policy(view, counts.completed) if view.is_indexed else ""
        return FinishedCondition(messages.SUCCESS_CRITERIA_MET, messages.SUCCESS_POLICY, rule) if rule else None

    def _failure(self) -> tuple[str, str] | None:
        view, counts = self.view, self.counts
        for pod in view.pods:
            if view.has_failed(pod) and (message := policies.match_failure_policy(view, pod).message):
                return messages.POD_FAILURE_POLICY, message
        if counts.failed > view.spec["backoffLimit"] or self._restarts_too_often():
            return messages.BACKOFF_LIMIT_EXCEEDED, messages.PAST_BACKOFF
        if self._is_past_deadline():
            return messages.DEADLINE_EXCEEDED, messages.PAST_DEADLINE
        if counts.failed_indexes:
            most = view.spec.get("maxFailedIndexes")
            if most is not None and len(counts.failed_indexes) > most:
                return messages.MAX_FAILED_INDEXES_EXCEEDED, messages.TOO_MANY_FAILED
            if len(counts.failed_indexes) + len(counts.completed) >= (view.completions or 0):
                return messages.FAILED_INDEXES, messages.HAS_FAILED_INDEXES
        return None

    def _restarts_too_often(self) -> bool:
        """Container restarts count towards the backoff limit where the kubelet restarts in place."""
        view = self.view
        if view.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        total = sum(container_restarts(pod) for pod in view.pods if phase(pod) in ("Running", "Pending"))
        return total > 0 if view.spec["backoffLimit"] == 0 else bool(total >= view.spec["backoffLimit"])

    def _is_past_deadline(self) -> bool:
        limit, start = self.view.spec.get("activeDeadlineSeconds"), self.status.start_time
        if limit is None or start is None or self.view.is_suspended:
            return False
        seconds_left = limit - (self.view.now - start).total_seconds()
        if seconds_left > 0:
            self.decision.wake(seconds_left)
        return bool(seconds_left <= 0)

    def _is_complete(self) -> bool:
        completions = self.view.completions
        enough = self.counts.succeeded > 0 if completions is None else self.counts.succeeded >= completions
        return enough and self.pod_plan.active == 0

    def _sync_suspension(self) -> None:
        status = self.status
        if self.view.is_suspended:
            if status.set(messages.SUSPENDED, messages.JOB_SUSPENDED, messages.IS_SUSPENDED):
                self.decision.events.append(Event("Normal", messages.EVENT_SUSPENDED, messages.IS_SUSPENDED))
        elif status.set(messages.SUSPENDED, messages.JOB_RESUMED, messages.IS_RESUMED, holds=False):
            self.decision.events.append(Event("Normal", messages.EVENT_RESUMED, messages.IS_RESUMED))
            status.start()  # activeDeadlineSeconds starts again

    def _account(self, ending: FinishedCondition | None) -> None:
        """Count pods without finalizer, record newly finished pods, and release them."""
        view, status = self.view, self.status
        forgotten = {uid(deletion.pod) for deletion in self.pod_plan.delete if deletion.is_surplus}
        tracked = [pod for pod in view.pods if is_tracked(pod) and uid(pod) not in forgotten]
        status.count_released(uid(pod) for pod in tracked)
        for pod in tracked:
            if len(status.uncounted_succeeded) + len(status.uncounted_failed) >= MOST_UNCOUNTED:
                break
            if self._may_release(pod, ending):
                self._record_end(pod, ending)
                self.decision.release.append(pod)
        if view.is_indexed:
            status.succeeded = len(self.counts.completed)
            status.completed_indexes = indexes.format_indexes(self.counts.completed)
            if self.counts.failed_indexes is not None:
                status.failed_indexes = indexes.format_indexes(self.counts.failed_indexes)

    def _may_release(self, pod: Object, ending: FinishedCondition | None) -> bool:
        if ending is not None or is_terminating(self.view.job) or phase(pod) == "Succeeded":
            return True
        is_held = any(uid(held_pod) == uid(pod) for held_pod in self.counts.last_failed.values())
        return self.view.has_failed(pod) and not is_held

    def _record_end(self, pod: Object, ending: FinishedCondition | None) -> None:
        """Running pods of a failed job count as failed; those of a successful job do not count."""
        view, status, name = self.view, self.status, uid(pod)
        if name in status.uncounted_failed or name in status.uncounted_succeeded:
            return
        if phase(pod) == "Succeeded":
            if not view.is_indexed:  # the index in the status is enough
                status.uncounted_succeeded.append(name)
            return
        has_failed = view.has_failed(pod) or (ending is not None and ending.is_failure)
        if has_failed and view.is_countable(pod) and policies.match_failure_policy(view, pod).counts:
            status.uncounted_failed.append(name)

    def _end(self, ending: FinishedCondition) -> None:
        """Set the interim condition first, and the final one when no pod is active and all are counted."""
        status, decision = self.status, self.decision
        if status.condition(ending.kind) is None:
            status.set(ending.kind, ending.reason, ending.message)
            return
        if status.has_uncounted or decision.release or status.active or status.terminating:
            return
        status.set(messages.FAILED if ending.is_failure else messages.COMPLETE, ending.reason, ending.message)
        if ending.is_failure:
            decision.events.append(Event("Warning", ending.reason, ending.message))
            return
        status.complete()
        if self.view.completions is not None and status.succeeded > self.view.completions:
            decision.events.append(Event("Warning", messages.EVENT_TOO_MANY, messages.TOO_MANY_SUCCEEDED))
        decision.events.append(Event("Normal", messages.EVENT_COMPLETED, messages.COMPLETED))
