"""Reasons, messages and events of a JobSet, as JobSet 0.12 writes them."""

from __future__ import annotations

COMPLETED, FAILED, SUSPENDED = "Completed", "Failed", "Suspended"
RESTARTING = "RestartingJobSet"
STARTUP_IN_PROGRESS, STARTUP_COMPLETED = "StartupPolicyInProgress", "StartupPolicyCompleted"
TERMINAL = (COMPLETED, FAILED)
# Conditions of which one is false when the other is true.
EXCLUSIVE = (STARTUP_IN_PROGRESS, STARTUP_COMPLETED)

ALL_JOBS_COMPLETED = ("AllJobsCompleted", "jobset completed successfully")
IS_SUSPENDED = ("SuspendedJobs", "jobset is suspended")
IS_RESUMED = ("ResumeJobs", "jobset is resumed")
IN_ORDER_IN_PROGRESS = ("InOrderStartupPolicyInProgress", "in order startup policy is in progress")
IN_ORDER_COMPLETED = ("InOrderStartupPolicyCompleted", "in order startup policy has completed")

FAILED_JOBS = ("FailedJobs", "jobset failed due to one or more job failures")
REACHED_MAX_RESTARTS = ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")

# Why the condition RestartingJobSet is true, or no longer true.
DEFAULT_FAILURE_POLICY = "DefaultFailurePolicy"
RESTART_READY = ("JobsReady", "all jobs are ready")
RESTART_COMPLETED = ("JobSetCompleted", "jobset completed successfully")
RESTART_FAILED = ("JobSetFailed", "jobset failed")
RESTART_SUSPENDED = ("JobSetSuspended", "jobset is suspended")

JOB_NOT_CREATED = "JobCreationFailed"
SERVICE_NOT_CREATED = "HeadlessServiceCreationFailed"
CLAIM_NOT_CREATED = "PVCCreationFailed"


def action(name: str) -> tuple[str, str]:
    """Return the reason and message of a failure policy action."""
    return f"{name}FailurePolicyAction", f"applying {name} failure policy action"


def failure_policy_rule(name: str) -> str:
    return f"FailurePolicy_{name}"


def with_first_failed_job(message: str, job: str) -> str:
    return f"{message} (first failed job: {job})"


def job_not_created(job: str, error: str) -> str:
    return f'job "{job}" creation failed with error: {error}'
