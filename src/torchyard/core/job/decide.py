"""What is to be done about a Job now. One pass decides everything; the controller only carries it out.

An end is counted in three steps, each of which may be the last before a crash: the pod's uid (or index) is written into
the status, the pod loses its finalizer, and only then does the next pass move the uid into a counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchyard.api.job import labels, messages
from torchyard.api.objects import Object
from torchyard.core.events import Event
from torchyard.core.job import indexes, policies
from torchyard.core.job.backoff import NO_FAILURES, Backoff
from torchyard.core.job.counts import Counts
from torchyard.core.job.pod_plan import PodDeletion, PodPlan
from torchyard.core.job.status import JobStatus
from torchyard.core.job.view import JobView, is_terminating, is_tracked, phase, restarts, uid

# A status holds so many uids at a time, and a pass makes or deletes so many pods.
MOST_UNCOUNTED = 500


class FinishedCondition(NamedTuple):
    kind: str  # the condition that says so before the last pod is gone
    reason: str
    message: str

    @property
    def is_failure(self) -> bool:
        return self.kind == messages.FAILURE_TARGET


@dataclass(slots=True)
class JobDecision:
    """In the order in which it is carried out: pods, status, finalizers. The events tell of the status."""

    delete: list[PodDeletion] = field(default_factory=list)
    create: list[Object] = field(default_factory=list)
    status: Object | None = None  # None: as it is
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
    pass_ = _JobSync(view, status)
    pass_.run()
    found = status.object()
    if found != view.status:
        pass_.decision.status = found
    return pass_.decision


class _JobSync:
    """One look at one job. Methods fill the decision and the status draft."""

    def __init__(self, view: JobView, status: JobStatus) -> None:
        self.view, self.status = view, status
        self.decision = JobDecision()
        self.tally = Counts.of(view, status)
        self.decision.backoff = view.backoff.after(self.tally.new_succeeded, self.tally.new_failed)
        self.crew = PodPlan(view, self.tally, self.decision.backoff)

    def run(self) -> None:
        view, status, crew = self.view, self.status, self.crew
        if not view.is_suspended and status.start_time is None:
            status.start()
        ending = self._ending()
        if ending is not None:
            crew.dismiss()
        else:
            if not is_terminating(view.job):
                crew.keep()
            if self._is_complete():
                ending = FinishedCondition(
                    messages.SUCCESS_CRITERIA_MET, messages.COMPLETIONS_REACHED, messages.REACHED
                )
            elif not is_terminating(view.job):
                self._note_suspension()
        self.decision.create, self.decision.delete = crew.create, crew.delete
        if crew.wait is not None:
            self.decision.wake(crew.wait)
        status.active, status.ready, status.terminating = crew.active, crew.ready, crew.terminating
        self._account(ending)
        if ending is not None:
            self._end(ending)

    def _ending(self) -> FinishedCondition | None:
        """Whether the job ends, by upstream's order: what was decided before, failures, then the success policy."""
        view, tally, status = self.view, self.tally, self.status
        for kind in (messages.SUCCESS_CRITERIA_MET, messages.FAILURE_TARGET):
            decided = status.condition(kind)
            if decided is not None:
                return FinishedCondition(kind, decided.get("reason", ""), decided.get("message", ""))
        failure = self._failure()
        if failure is not None:
            return FinishedCondition(messages.FAILURE_TARGET, *failure)
        rule = policies.match_success_policy(view, tally.completed) if view.is_indexed else ""
        return FinishedCondition(messages.SUCCESS_CRITERIA_MET, messages.SUCCESS_POLICY, rule) if rule else None

    def _failure(self) -> tuple[str, str] | None:
        view, tally = self.view, self.tally
        for pod in view.pods:
            if view.has_failed(pod) and (message := policies.match_failure_policy(view, pod).message):
                return messages.POD_FAILURE_POLICY, message
        if tally.failed > view.spec["backoffLimit"] or self._restarts_too_often():
            return messages.BACKOFF_LIMIT_EXCEEDED, messages.PAST_BACKOFF
        if self._is_past_deadline():
            return messages.DEADLINE_EXCEEDED, messages.PAST_DEADLINE
        if tally.failed_indexes:
            most = view.spec.get("maxFailedIndexes")
            if most is not None and len(tally.failed_indexes) > most:
                return messages.MAX_FAILED_INDEXES_EXCEEDED, messages.TOO_MANY_FAILED
            if len(tally.failed_indexes) + len(tally.completed) >= (view.completions or 0):
                return messages.FAILED_INDEXES, messages.HAS_FAILED_INDEXES
        return None

    def _restarts_too_often(self) -> bool:
        """Restarts in place count too where the node makes them."""
        view = self.view
        if view.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        total = sum(restarts(pod) for pod in view.pods if phase(pod) in ("Running", "Pending"))
        return total > 0 if view.spec["backoffLimit"] == 0 else bool(total >= view.spec["backoffLimit"])

    def _is_past_deadline(self) -> bool:
        limit, start = self.view.spec.get("activeDeadlineSeconds"), self.status.start_time
        if limit is None or start is None or self.view.is_suspended:
            return False
        left = limit - (self.view.now - start).total_seconds()
        if left > 0:
            self.decision.wake(left)
        return bool(left <= 0)

    def _is_complete(self) -> bool:
        wanted = self.view.completions
        enough = self.tally.succeeded > 0 if wanted is None else self.tally.succeeded >= wanted
        return enough and self.crew.active == 0

    def _note_suspension(self) -> None:
        status = self.status
        if self.view.is_suspended:
            if status.set(messages.SUSPENDED, messages.JOB_SUSPENDED, messages.IS_SUSPENDED):
                self.decision.events.append(Event("Normal", messages.EVENT_SUSPENDED, messages.IS_SUSPENDED))
        elif status.set(messages.SUSPENDED, messages.JOB_RESUMED, messages.IS_RESUMED, holds=False):
            self.decision.events.append(Event("Normal", messages.EVENT_RESUMED, messages.IS_RESUMED))
            status.start()  # the deadline counts anew

    def _account(self, ending: FinishedCondition | None) -> None:
        """Count what has lost its finalizer, note what has ended, and let go of it."""
        view, status = self.view, self.status
        forgotten = {uid(one.pod) for one in self.crew.delete if one.is_forgotten}
        tracked = [pod for pod in view.pods if is_tracked(pod) and uid(pod) not in forgotten]
        status.count_released(uid(pod) for pod in tracked)
        for pod in tracked:
            if len(status.uncounted_succeeded) + len(status.uncounted_failed) >= MOST_UNCOUNTED:
                break
            if self._may_go(pod, ending):
                self._note_end(pod, ending)
                self.decision.release.append(pod)
        if view.is_indexed:
            status.succeeded = len(self.tally.completed)
            status.completed_indexes = indexes.compressed(self.tally.completed)
            if self.tally.failed_indexes is not None:
                status.failed_indexes = indexes.compressed(self.tally.failed_indexes)

    def _may_go(self, pod: Object, ending: FinishedCondition | None) -> bool:
        if ending is not None or is_terminating(self.view.job) or phase(pod) == "Succeeded":
            return True
        is_held = any(uid(one) == uid(pod) for one in self.tally.held.values())
        return self.view.has_failed(pod) and not is_held

    def _note_end(self, pod: Object, ending: FinishedCondition | None) -> None:
        """Of a failing job's pods those that still run have failed with it; of a successful one's they do not count."""
        view, status, name = self.view, self.status, uid(pod)
        if name in status.uncounted_failed or name in status.uncounted_succeeded:
            return
        if phase(pod) == "Succeeded":
            if not view.is_indexed:  # an index in the status says as much
                status.uncounted_succeeded.append(name)
            return
        has_failed = view.has_failed(pod) or (ending is not None and ending.is_failure)
        if has_failed and view.is_countable(pod) and policies.match_failure_policy(view, pod).counts:
            status.uncounted_failed.append(name)

    def _end(self, ending: FinishedCondition) -> None:
        """First the condition that decides it; the final one when nothing runs and everything is counted."""
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
