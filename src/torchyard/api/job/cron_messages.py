"""Reasons and messages of CronJob events, as kube-controller-manager writes them."""

from __future__ import annotations

CONTROLLER = "cronjob-controller"
SCHEDULED_FOR = "batch.kubernetes.io/cronjob-scheduled-timestamp"

CREATED, NOT_CREATED = "SuccessfulCreate", "FailedCreate"
DELETED, NOT_DELETED = "SuccessfulDelete", "FailedDelete"
UNEXPECTED, COMPLETED, MISSING = "UnexpectedJob", "SawCompletedJob", "MissingJob"
BAD_SCHEDULE, TOO_LATE, TOO_MANY = "InvalidSchedule", "MissSchedule", "TooManyMissedTimes"
STILL_ACTIVE = "JobAlreadyActive"

STILL_RUNS = "Not starting job because prior execution is running and concurrency policy is Forbid"
MISSED_MANY = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"


def created(job: str) -> str:
    return f"Created job {job}"


def not_created(why: str) -> str:
    return f"Error creating job: {why}"


def deleted(job: str) -> str:
    return f"Deleted job {job}"


def not_deleted(why: str) -> str:
    return f"Deleted job: {why}"


def unexpected(job: str) -> str:
    return f"Saw a job that the controller did not create or forgot: {job}"


def completed(job: str, condition: str) -> str:
    return f"Saw completed job: {job}, condition: {condition}"


def missing(job: str) -> str:
    return f"Active job went missing: {job}"


def never_comes(schedule: str) -> str:
    return f"invalid schedule: {schedule} : time difference between two schedules is less than 1 second"


def too_late(moment: str) -> str:
    return f"Missed scheduled time to start a job: {moment}"
