"""What to do about a TrainJob. The controller makes the objects first, then applies this decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api import conditions
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, shift
from torchyard.api.trainjob import messages, names
from torchyard.core.events import Event
from torchyard.core.trainjob.status import final_counts, is_finished, next_status
from torchyard.core.trainjob.view import TrainJobView


@dataclass(slots=True)
class TrainJobDecision:
    """In the order in which it is applied: status, then deletions; events last."""

    status: Object | None = None  # None: no change
    delete_jobset: bool = False
    delete_job: bool = False
    events: list[Event] = field(default_factory=list)
    wake_after: float | None = None  # seconds


def needs_objects(job: Object) -> bool:
    """Whether the objects of a job are to be made or updated."""
    return (
        names.is_managed_here(job)
        and names.is_supported_runtime(job)
        and not is_terminating(job)
        and not is_finished(job)
    )


def updates_jobset(job: Object, jobset: Object) -> bool:
    """A JobSet changes only while it or the TrainJob is suspended."""
    return bool(job["spec"].get("suspend") or jobset["spec"].get("suspend"))


def decide(view: TrainJobView) -> TrainJobDecision:
    decision = TrainJobDecision()
    if not names.is_managed_here(view.job) or is_terminating(view.job):
        return decision
    if is_finished(view.job):
        # Again after a deletion that failed: the status was written before it.
        decision.delete_jobset = _is_past_deadline(view.job["status"]) and _has_jobset(view)
        if not _is_past_deadline(view.job["status"]):
            decision.status = final_counts(view)
        _expire(view, decision)
        return decision
    seconds_left = _seconds_to_deadline(view)
    past_deadline = seconds_left is not None and seconds_left <= 0
    status = next_status(view, past_deadline=past_deadline)
    before = view.job.get("status") or {}
    if any(before.get(name) != value for name, value in status.items()):
        decision.status = status
    if seconds_left is not None and not past_deadline:
        decision.wake_after = seconds_left
    ended = next((each for each in status["conditions"] if each["type"] in messages.TERMINAL), None)
    if ended is not None:
        decision.delete_jobset = _is_past_deadline(status) and _has_jobset(view)
        kind = "Normal" if ended["type"] == messages.COMPLETE else "Warning"
        decision.events.append(Event(kind, ended["reason"], ended["message"]))  # type: ignore[arg-type]
        # Looked at again for the time to live.
        decision.wake_after = 0.0 if names.time_to_live(view.job) is not None else None
    if view.not_made:
        decision.events.append(Event("Warning", messages.NOT_MADE, view.not_made))
    if view.is_being_resumed:
        decision.events.append(Event("Normal", messages.IS_RESUMED, messages.RESUMED_MESSAGE))
    return decision


def _seconds_to_deadline(view: TrainJobView) -> float | None:
    """A deadline counts from the job's creation, or from its last resumption; not while it is suspended."""
    seconds = view.job["spec"].get("activeDeadlineSeconds")
    if seconds is None or view.is_suspended:
        return None
    return (shift(_active_since(view), seconds) - view.now).total_seconds()


def _active_since(view: TrainJobView) -> datetime:
    """The latest of creation and resumption.

    The condition of the JobSet is the older record: it is late, and lost when the JobSet is created again.
    """
    suspended = conditions.find(((view.jobset or {}).get("status") or {}).get("conditions") or (), messages.SUSPENDED)
    resumed = (view.job.get("status") or {}).get("resumeTime")
    if view.is_being_resumed or (resumed is None and suspended is not None and suspended["status"] == "True"):
        return view.now
    times = [view.job["metadata"]["creationTimestamp"], resumed]
    if suspended is not None and suspended["status"] == "False":
        times.append(suspended["lastTransitionTime"])
    return max(parse_rfc3339(time) for time in times if time)


def _is_past_deadline(status: Object) -> bool:
    failed = conditions.find(status["conditions"], messages.FAILED)
    return failed is not None and failed["status"] == "True" and failed["reason"] == messages.PAST_DEADLINE


def _has_jobset(view: TrainJobView) -> bool:
    return view.jobset is not None and not is_terminating(view.jobset)


def _expire(view: TrainJobView, decision: TrainJobDecision) -> None:
    """Delete a finished job with a time to live."""
    seconds = names.time_to_live(view.job)
    if seconds is None:
        return
    listed = view.job["status"]["conditions"]
    ended = max(
        parse_rfc3339(each["lastTransitionTime"])
        for each in listed
        if each["type"] in messages.TERMINAL and each["status"] == "True"
    )
    left = (shift(ended, seconds) - view.now).total_seconds()
    decision.delete_job = left <= 0
    decision.wake_after = left if left > 0 else None
