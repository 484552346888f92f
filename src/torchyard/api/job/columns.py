"""Table columns of Jobs and CronJobs."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.progress import progress_text_of
from torchyard.api.table_cells import (
    AGE,
    CONTAINERS,
    NAME,
    NONE,
    SELECTOR,
    age,
    age_of,
    condition_status,
    container_names_and_images,
    format_selector,
    name_of,
)
from torchyard.api.times import human_duration


def _job_cells(job: Object, now: datetime) -> list[Cell]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    return [
        name_of(job),
        _status(job, status.get("conditions")),
        _completions(spec, status.get("succeeded") or 0),
        _duration(status, now),
        age_of(job, now),
        *container_names_and_images((spec.get("template") or {}).get("spec") or {}),
        format_selector(spec.get("selector")),
    ]


def _status(job: Object, conditions: list[Object] | None) -> str:
    for kind in ("Complete", "Failed"):
        if condition_status(conditions, kind) == "True":
            return kind
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    for kind, word in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition_status(conditions, kind) == "True":
            return word
    return "Running"


def _completions(spec: Object, succeeded: int) -> str:
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(status: Object, now: datetime) -> str:
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return human_duration((datetime.fromisoformat(end) if end else now) - datetime.fromisoformat(status["startTime"]))


JOBS = Columns(
    (
        NAME,
        Column("Status", description="Whether the job is running, complete, failed or suspended."),
        Column("Completions", description="The succeeded pods and the required number."),
        Column("Duration", description="The time that the job has been running, or ran."),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    _job_cells,
    # Ours: a Job of a training shows its progress. Other Jobs have kube-apiserver's table.
    optional=Column("Progress", description="How far the training is, as it reports."),
    optional_cell=progress_text_of,
)


def _cron_job_cells(cron: Object, now: datetime) -> list[Cell]:
    spec, status = cron.get("spec") or {}, cron.get("status") or {}
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        name_of(cron),
        spec.get("schedule") or "",
        spec.get("timeZone") or NONE,
        "<unset>" if suspend is None else str(bool(suspend)),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(cron, now),
        *container_names_and_images((job.get("template") or {}).get("spec") or {}),
        format_selector(job.get("selector")),
    ]


CRON_JOBS = Columns(
    (
        NAME,
        Column("Schedule", description="The schedule in cron format."),
        Column("Timezone", description="The time zone of the schedule."),
        Column("Suspend", "boolean", description="Whether no new jobs are created."),
        Column("Active", "integer", description="The number of running jobs."),
        Column("Last Schedule", description="The time since the last job was scheduled."),
        AGE,
        *CONTAINERS,
        SELECTOR,
    ),
    _cron_job_cells,
)
