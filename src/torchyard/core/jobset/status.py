"""The status of a JobSet under construction, with upstream's rules for conditions and counts."""

from __future__ import annotations

import copy
from datetime import datetime

from torchyard.api.conditions import is_true
from torchyard.api.jobset import messages
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.events import Event
from torchyard.core.jobset.view import JobSetView, is_suspended, replicated_job_of

_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")
_RESTART_COUNTERS = ("jobRestarts", "jobRestartsCountTowardsMax")


class StatusDraft:
    """`result` is the new status, or None if nothing changed. Events are recorded after it was written."""

    def __init__(self, view: JobSetView) -> None:
        self._before: Object = view.jobset.get("status") or {}
        self.values: Object = copy.deepcopy(self._before)
        self.events: list[Event] = []
        self._now: datetime = view.now

    @property
    def result(self) -> Object | None:
        return None if self.values == self._before else {"restarts": 0, **self.values}

    @property
    def is_finished(self) -> bool:
        return any(is_true(self.values.get("conditions") or (), type) for type in messages.TERMINAL)

    def set_counts(self, counts: list[Object]) -> None:
        """A JobSet without replicated jobs gets no status from this alone, as upstream."""
        if counts or self.values.get("replicatedJobsStatus"):
            self.values["replicatedJobsStatus"] = counts

    def set_condition(
        self, type: str, reason_and_message: tuple[str, str], *, status: bool = True, warning: bool = False
    ) -> None:
        """Set a condition if its status changes. A false condition is only written where it was true before."""
        reason, message = reason_and_message
        new = {
            "type": type,
            "status": "True" if status else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": to_rfc3339(self._now),
        }
        conditions = self.values.get("conditions") or []
        changed = self._replace(conditions, new)
        if status and not any(condition["type"] == type for condition in conditions):
            conditions.append(new)
            changed = True
        if changed:
            self.values["conditions"] = conditions
            self.events.append(Event("Warning" if warning else "Normal", reason, message))

    def _replace(self, conditions: list[Object], new: Object) -> bool:
        changed = False
        for index, condition in enumerate(conditions):
            if condition["type"] == new["type"]:
                if condition["status"] != new["status"]:
                    conditions[index] = new
                    changed = True
            elif {condition["type"], new["type"]} == set(messages.EXCLUSIVE) and condition["status"] == new[
                "status"
            ] == "True":
                # As upstream: the opposite condition keeps its reason and time.
                conditions[index] = {**condition, "status": "False"}
                changed = True
        return changed

    def end_restart(self, reason_and_message: tuple[str, str]) -> None:
        """Set RestartingJobSet to false where it was set; a later reason replaces an earlier one."""
        reason, message = reason_and_message
        conditions = self.values.get("conditions") or []
        for index, condition in enumerate(conditions):
            if condition["type"] == messages.RESTARTING and condition["reason"] != reason:
                time = to_rfc3339(self._now) if condition["status"] == "True" else condition["lastTransitionTime"]
                changed = {"status": "False", "reason": reason, "message": message, "lastTransitionTime": time}
                conditions[index] = {**condition, **changed}
                self.events.append(Event("Normal", reason, message))

    @property
    def is_restarting(self) -> bool:
        return is_true(self.values.get("conditions") or (), messages.RESTARTING)

    def finish(self, type: str, reason_and_message: tuple[str, str]) -> None:
        self.end_restart(messages.RESTART_FAILED if type == messages.FAILED else messages.RESTART_COMPLETED)
        self.set_condition(type, reason_and_message, warning=type == messages.FAILED)
        self.values["terminalState"] = type

    def warn(self, reason: str, message: str) -> None:
        self.events.append(Event("Warning", reason, message))


def count_jobs(view: JobSetView) -> list[Object]:
    """status.replicatedJobsStatus: how many Jobs of each replicated job are ready, active, and so on."""
    before = {entry["name"]: entry for entry in (view.jobset.get("status") or {}).get("replicatedJobsStatus") or ()}
    counts: dict[str, Object] = {}
    for replicated_job in view.replicated_jobs:
        name = replicated_job["name"]
        counters = {key: before[name][key] for key in _RESTART_COUNTERS if key in before.get(name, {})}
        counts[name] = {"name": name, **dict.fromkeys(_COUNTS, 0), **counters}
    for job in view.active:
        entry = counts.get(replicated_job_of(job))
        if entry is not None:
            _count_active(job, entry)
    for jobs, kind in ((view.successful, "succeeded"), (view.failed, "failed")):
        for job in jobs:
            entry = counts.get(replicated_job_of(job))
            if entry is not None:
                entry[kind] += 1
    return sorted(counts.values(), key=lambda entry: str(entry["name"]), reverse=True)


def _count_active(job: Object, entry: Object) -> None:
    status, spec = job.get("status") or {}, job["spec"]
    pods = spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        pods = min(pods, spec["completions"])
    if (status.get("succeeded") or 0) + (status.get("ready") or 0) >= pods:
        entry["ready"] += 1
    if (status.get("active") or 0) > 0:
        entry["active"] += 1
    if is_suspended(job):
        entry["suspended"] += 1
