"""What to do about a CronJob. A job's name contains its scheduled minute, so that no job is started twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from torchyard.api.job import cron_messages as messages
from torchyard.api.job.schedule import parse_schedule
from torchyard.api.job.status import is_true
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, shift, to_rfc3339
from torchyard.core.cronjob.schedule import Due, latest, next_after
from torchyard.core.events import Event

_MANY_MISSED = 100
# Wake up a little after the scheduled time, so that a clock that is slightly slow does not miss it.
_SCHEDULE_DELTA = timedelta(milliseconds=100)


@dataclass(slots=True)
class CronJobDecision:
    """In the order in which it is applied: replaced jobs, the job to start, status, jobs beyond the history limits."""

    replace: list[Object] = field(default_factory=list)  # object references, as in status.active
    create: Object | None = None
    scheduled: datetime | None = None  # the time that `create` is scheduled for
    status: Object = field(default_factory=dict)
    delete_history: list[Object] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    wake_after: float | None = None  # seconds


def finished_condition(job: Object) -> str:
    """The condition that finished a job; empty while it is active."""
    status = job.get("status") or {}
    return next((kind for kind in ("Complete", "Failed") if is_true(status, kind)), "")


def decide(cron: Object, jobs: Iterable[Object], now: datetime) -> CronJobDecision:
    known_jobs = list(jobs)
    decision = CronJobDecision(status=dict(cron.get("status") or {}))
    _sync_active_jobs(cron, known_jobs, decision)
    decision.delete_history = list(_jobs_over_history_limit(cron["spec"], known_jobs))
    spec = cron["spec"]
    if not cron["metadata"].get("deletionTimestamp") and not spec.get("suspend"):
        _schedule(cron, decision, now)
    return decision


def _sync_active_jobs(cron: Object, jobs: list[Object], decision: CronJobDecision) -> None:
    """Remove finished jobs from status.active and record events about them."""
    status = decision.status
    by_uid = {job["metadata"]["uid"]: job for job in jobs}
    active: list[Object] = []
    for reference in status.get("active") or ():
        job = by_uid.get(reference["uid"])
        if job is None:
            decision.events.append(Event("Normal", messages.MISSING, messages.missing(reference["name"])))
        elif condition := finished_condition(job):
            message = messages.completed(reference["name"], condition)
            decision.events.append(Event("Normal", messages.COMPLETED, message))
        else:
            active.append(reference)
    listed = {reference["uid"] for reference in active}
    for uid, job in by_uid.items():
        if uid not in listed and not finished_condition(job):
            name = job["metadata"]["name"]
            decision.events.append(Event("Warning", messages.UNEXPECTED, messages.unexpected(name), once=(uid,)))
    ends = [job["status"]["completionTime"] for job in jobs if finished_condition(job) == "Complete"]
    newest = max([*ends, status.get("lastSuccessfulTime") or ""])
    if newest:
        status["lastSuccessfulTime"] = newest
    set_active(status, active)


def set_active(status: Object, active: list[Object]) -> None:
    status.pop("active", None)
    if active:
        status["active"] = active


def _jobs_over_history_limit(spec: Object, jobs: list[Object]) -> Iterator[Object]:
    """Finished jobs beyond the history limits, oldest first."""
    for condition, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        ended = [
            job for job in jobs if finished_condition(job) == condition and not job["metadata"].get("deletionTimestamp")
        ]
        ended.sort(key=lambda job: (job["status"].get("startTime") or "9", job["metadata"]["name"]))
        if spec.get(limit) is not None:
            yield from ended[: max(0, len(ended) - spec[limit])]


def _schedule(cron: Object, decision: CronJobDecision, now: datetime) -> None:
    spec, status = cron["spec"], decision.status
    schedule, zone = parse_schedule(spec["schedule"]), _zone(spec)
    uid = cron["metadata"]["uid"]
    coming = next_after(schedule, now, zone)
    if coming is None:
        message = messages.never_comes(spec["schedule"])
        decision.events.append(Event("Warning", messages.BAD_SCHEDULE, message, once=(uid, spec["schedule"])))
        return
    since = parse_rfc3339(status.get("lastScheduleTime") or cron["metadata"]["creationTimestamp"])
    if schedule.every is not None:  # @every counts from the last start, not from now
        upcoming = latest(schedule, since, now, zone)
        coming = next_after(schedule, upcoming.moment if upcoming else since, zone) or coming
    decision.wake_after = (coming + _SCHEDULE_DELTA - now).total_seconds()
    deadline = spec.get("startingDeadlineSeconds")
    earliest = since if deadline is None else max(since, shift(now, -deadline))
    due = latest(schedule, earliest, now, zone)
    if due is None:
        _record_missed(decision, latest(schedule, since, now, zone), uid)
    elif due.moment != since:
        if due.missed > _MANY_MISSED:
            decision.events.append(Event("Warning", messages.TOO_MANY, messages.MISSED_MANY))
        _start(cron, decision, due.moment, zone)


def _zone(spec: Object) -> tzinfo:
    """The schedule's time zone; UTC by default."""
    return ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC


def _record_missed(decision: CronJobDecision, missed: Due | None, uid: str) -> None:
    if missed is not None:
        text = messages.too_late(missed.moment.strftime("%a, %d %b %Y %H:%M:%S +0000"))
        decision.events.append(Event("Warning", messages.TOO_LATE, text, once=(uid, str(missed.moment))))


def _start(cron: Object, decision: CronJobDecision, moment: datetime, zone: tzinfo) -> None:
    spec, active = cron["spec"], decision.status.get("active") or []
    job = make_job(cron, moment, zone)
    if any(reference["name"] == job["metadata"]["name"] for reference in active):
        return
    if active and spec.get("concurrencyPolicy") == "Forbid":
        decision.events.append(Event("Normal", messages.STILL_ACTIVE, messages.STILL_RUNS))
        return
    if spec.get("concurrencyPolicy") == "Replace":
        decision.replace = list(active)
        set_active(decision.status, [])
    decision.create, decision.scheduled = job, moment


def make_job(cron: Object, moment: datetime, zone: tzinfo = UTC) -> Object:
    metadata, template = cron["metadata"], cron["spec"]["jobTemplate"]
    template_metadata = template.get("metadata") or {}
    local = moment.astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{metadata['name']}-{int(moment.timestamp()) // 60}",
            "namespace": metadata["namespace"],
            "labels": dict(template_metadata.get("labels") or {}),
            "annotations": {**(template_metadata.get("annotations") or {}), messages.SCHEDULED_FOR: local},
            "ownerReferences": [controller_reference(cron, "batch/v1", "CronJob")],
        },
        "spec": template["spec"],
    }


def record_start(status: Object, job: Object, moment: datetime) -> None:
    """Add a started job to the status, with its scheduled time."""
    metadata = job["metadata"]
    reference = {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }
    others = [other for other in status.get("active") or () if other["uid"] != metadata["uid"]]
    set_active(status, others if finished_condition(job) else [*others, reference])
    status["lastScheduleTime"] = to_rfc3339(moment)
