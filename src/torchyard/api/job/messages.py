"""Conditions, reasons, messages and events of a Job, as kube-controller-manager writes them."""

from __future__ import annotations

CONTROLLER = "job-controller"

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"

COMPLETIONS_REACHED = "CompletionsReached"
REACHED = "Reached expected number of succeeded pods"
SUCCESS_POLICY = "SuccessPolicy"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
PAST_BACKOFF = "Job has reached the specified backoff limit"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PAST_DEADLINE = "Job was active longer than specified deadline"
POD_FAILURE_POLICY = "PodFailurePolicy"
MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
TOO_MANY_FAILED = "Job has exceeded the specified maximal number of failed indexes"
FAILED_INDEXES = "FailedIndexes"
HAS_FAILED_INDEXES = "Job has failed indexes"
JOB_SUSPENDED, JOB_RESUMED = "JobSuspended", "JobResumed"
IS_SUSPENDED, IS_RESUMED = "Job suspended", "Job resumed"

EVENT_SUSPENDED, EVENT_RESUMED = "Suspended", "Resumed"
EVENT_COMPLETED, COMPLETED = "Completed", "Job completed"
EVENT_TOO_MANY = "TooManySucceededPods"
TOO_MANY_SUCCEEDED = "Too many succeeded pods running after completion count reached"
CREATED, NOT_CREATED = "SuccessfulCreate", "FailedCreate"
DELETED, NOT_DELETED = "SuccessfulDelete", "FailedDelete"


def matched_success_rule(index: int) -> str:
    return f"Matched rules at index {index}"


def exit_code_matched(container: str, pod: str, code: int, index: int) -> str:
    return f"Container {container} for pod {pod} failed with exit code {code} matching FailJob rule at index {index}"


def condition_matched(pod: str, condition: str, index: int) -> str:
    return f"Pod {pod} has condition {condition} matching FailJob rule at index {index}"


def pod_created(pod: str) -> str:
    return f"Created pod: {pod}"


def pod_deleted(pod: str) -> str:
    return f"Deleted pod: {pod}"


def not_created(why: str) -> str:
    return f"Error creating: {why}"


def not_deleted(pod: str, why: str) -> str:
    return f"Error deleting pod {pod}: {why}"
