"""The condition types, reasons, events and messages of Workloads, each defined once.

Texts that Kueue has are Kueue's, letter for letter. Those of queues are in `queue_messages`, those of jobs in
`job_messages`, and what is added to explain a pending workload in `advice_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ReasonMessage(NamedTuple):
    """The `reason` and `message` of a condition or an event."""

    reason: str
    message: str


# Condition types of a Workload.
QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
PODS_READY = "PodsReady"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"
WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
DEACTIVATION_TARGET = "DeactivationTarget"

# Reasons of QuotaReserved=False.
REASON_PENDING = "Pending"
REASON_INADMISSIBLE = "Inadmissible"
REASON_WAITING = "Waiting"
REASON_ADMISSION_GATED = "AdmissionGated"

# Why a workload is pending, more exactly: the reasons of events about jobs, with the condition's reason for each.
REASON_NO_MATCHING_FLAVOR = "NoMatchingFlavor"
REASON_WAITING_FOR_QUOTA = "WaitingForQuota"
REASON_EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
REASON_QUOTA_HELD = "QuotaHeldForItsOwner"
REASON_WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
REASON_NAMESPACE_MISMATCH = "NamespaceMismatch"
REASON_MISCONFIGURED = "Misconfigured"
REASON_SUSPENDED = "Suspended"
REASON_ON_HOLD = "OnHold"
REASON_WAITING_FOR_PODS_READY = "WaitingForPodsReady"

# Reasons of Admitted=False and PodsReady.
REASON_NO_RESERVATION = "NoReservation"
REASON_WAIT_FOR_START = "WaitForStart"
REASON_STARTED = "Started"
REASON_WAIT_FOR_RECOVERY = "WaitForRecovery"
REASON_RECOVERED = "Recovered"
_CONDITION_REASONS = {
    REASON_MISCONFIGURED: REASON_INADMISSIBLE,
    REASON_SUSPENDED: REASON_INADMISSIBLE,
    REASON_WAITING_FOR_PODS_READY: REASON_WAITING,
    REASON_ADMISSION_GATED: REASON_ADMISSION_GATED,
}

# Reasons of Evicted.
REASON_PREEMPTED = "Preempted"
REASON_PODS_READY_TIMEOUT = "PodsReadyTimeout"
REASON_ADMISSION_CHECK = "AdmissionCheck"
REASON_CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
REASON_LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
REASON_DEACTIVATED = "Deactivated"

# Reasons of Preempted.
REASON_IN_CLUSTER_QUEUE = "InClusterQueue"
REASON_IN_COHORT_RECLAMATION = "InCohortReclamation"
REASON_IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
REASON_IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"

# Reasons of Requeued, Finished and DeactivationTarget.
REASON_BACKOFF_FINISHED = "BackoffFinished"
REASON_REACTIVATED = "Reactivated"
REASON_SUCCEEDED = "Succeeded"
REASON_FAILED = "Failed"
REASON_FAILED_TO_START = "FailedToStart"
REASON_SLICE_REPLACED = "WorkloadSliceReplaced"
REASON_REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"

# Event sources and event reasons.
COMPONENT_SCHEDULER = "kueue-admission"
COMPONENT_WORKLOADS = "kueue-workload-controller"
EVENT_PREEMPTED_WORKLOAD = "PreemptedWorkload"
EVENT_CHECK_REJECTED = "AdmissionCheckRejected"

# Kueue's messages without parameters.
WORKLOAD_IS_ADMITTED = "The workload is admitted"
WORKLOAD_HAS_NO_RESERVATION = "The workload has no reservation"
WORKLOAD_IS_DEACTIVATED = "The workload is deactivated"
WORKLOAD_WAS_REACTIVATED = "The workload was reactivated"
CHECKS_NOT_READY = "The workload has not all checks ready"
CHECK_RESET = "Reset to Pending"
PODS_NOT_READY = "Not all pods are ready or succeeded"
REASON_PODS_FAILED = "PodsFailed"
PODS_NEED_REPLACEMENT = "Some Failed pods need replacement"
NO_PODS_NEED_REPLACEMENT = "No pods need replacement"
ALL_PODS_READY = "All pods reached readiness and the workload is running"
WAITING_FOR_POD_RECOVERY = "At least one pod has failed, waiting for recovery"
WAITING_FOR_ALL_PODS_READY = "waiting for all admitted workloads to be in PodsReady condition"
BACKOFF_WAS_FINISHED = "The workload backoff was finished"
NO_LONGER_FITS = "Workload no longer fits after processing another workload"
OVERLAPPING_TARGETS = "Workload has overlapping preemption targets with another workload"
CLUSTER_QUEUE_STOPPED = "The ClusterQueue is stopped"
LOCAL_QUEUE_STOPPED = "The LocalQueue is stopped"
# Reason and message of Requeued, by the reason for which a stopped queue evicted a workload.
QUEUE_RESTARTED = {
    REASON_CLUSTER_QUEUE_STOPPED: ReasonMessage(
        "ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"
    ),
    REASON_LOCAL_QUEUE_STOPPED: ReasonMessage(
        "LocalQueueRestarted", "The LocalQueue was restarted after being stopped"
    ),
}
NAMESPACE_MISMATCH = "workload namespace doesn't match ClusterQueue selector"
REQUESTS_ABOVE_LIMITS = "requests must not exceed its limits"
ABOVE_LIMIT_RANGE_MAX = "requests must not be above the limitRange max"
BELOW_LIMIT_RANGE_MIN = "requests must not be below the limitRange min"
WORKLOAD_CHANGED = "the workload changed at the same time"


def condition_reason(cause: str) -> str:
    """The reason of QuotaReserved=False for a cause."""
    return _CONDITION_REASONS.get(cause, REASON_PENDING)


def quota_reserved(cluster_queue: str) -> str:
    return f"Quota reserved in ClusterQueue {cluster_queue}"


def quota_reserved_event(cluster_queue: str, seconds: float, flavors: str) -> str:
    return f"{quota_reserved(cluster_queue)}, wait time since queued was {seconds:.0f}s; Flavors considered: {flavors}"


def admitted_event(cluster_queue: str, seconds: float) -> str:
    return f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {seconds:.0f}s"


EXCEEDS_EXECUTION_TIME = "exceeding the maximum execution time"
EXCEEDS_REQUEUING_LIMIT = "exceeding the maximum number of re-queuing retries"


def slice_replaced(*, uid: str, job_uid: str) -> str:
    return (
        f"Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid or 'UNKNOWN'}) due to workload slice"
        " aggregation"
    )


def preempted_workload(namespace: str, name: str, reason: str) -> str:
    return f"Preempted {namespace}/{name} ({reason})"


def previously(message: str) -> str:
    return f"Previously: {message}"


def checks_in_state(state: str, checks: Iterable[tuple[str, str]]) -> str:
    """`checks`: names and messages."""
    texts = (f'"{name}" ({message})' if message else f'"{name}"' for name, message in checks)
    return f"AdmissionCheck in {state} state: {', '.join(texts)}"


def evicted_due_to(cause: str) -> str:
    return f"Evicted due to {cause}"


def flavors_not_assigned(pod_set: str, why: str) -> str:
    return f"couldn't assign flavors to pod set {pod_set}: {why}"


def insufficient_unused_quota(resource: str, flavor: str, missing: str) -> str:
    return f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"


def exceeds_capacity(resource: str, flavor: str, *, before: str, requested: str, limit: str) -> str:
    return (
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({before})"
        f" + current podset request ({requested}) > maximum capacity ({limit})"
    )


def invalid_resources(errs: Iterable[object]) -> str:
    return f"resources validation failed: {_aggregate(errs)}"


def limit_range_not_satisfied(errs: Iterable[object]) -> str:
    return f"resources didn't satisfy LimitRange constraints: {_aggregate(errs)}"


def _aggregate(errs: Iterable[object]) -> str:
    """Errors as upstream joins them."""
    texts = list(dict.fromkeys(map(str, errs)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def affinity_mismatch(flavor: str) -> str:
    return f"flavor {flavor} doesn't match node affinity"


def untolerated_taint(key: str, value: str, effect: str, flavor: str) -> str:
    """The taint as Go prints a struct, as in Kueue."""
    return f"untolerated taint {{{key} {value} {effect} <nil>}} in flavor {flavor}"


def flavor_not_found(flavor: str) -> str:
    return f"flavor {flavor} not found"


def not_the_running_flavor(flavor: str) -> str:
    return f"flavor {flavor} is not the one that the job runs in"


def resource_unavailable(resource: str) -> str:
    return f"resource {resource} unavailable in ClusterQueue"


def does_not_exist(kind: str, name: str) -> str:
    return f"{kind} {name} doesn't exist"


def is_inactive(kind: str, name: str) -> str:
    return f"{kind} {name} is inactive"


def gated_by(gates: str) -> str:
    return f"Admission is gated by: {gates}"


_PREEMPTION_CAUSES = {
    REASON_IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    REASON_IN_COHORT_RECLAMATION: "reclamation within the cohort",
    REASON_IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    REASON_IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def preempted_by(reason: str, *, uid: str, job_uid: str, preemptor_path: str, preemptee_path: str) -> str:
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid or 'UNKNOWN'}) due to"
        f" {_PREEMPTION_CAUSES[reason]}; preemptor path: {preemptor_path}; preemptee path: {preemptee_path}"
    )


def pending_preemption(why: str, count: int) -> str:
    return f"{why}. Pending the preemption of {count} workload(s)"


def pods_ready_timeout(namespace: str, name: str) -> str:
    return f"Exceeded the PodsReady timeout {namespace}/{name}"


def execution_time_exceeded(seconds: int) -> str:
    """For an event."""
    return f"The maximum execution time ({seconds}s) exceeded"


def deactivated_because(message: str) -> str:
    return f"{WORKLOAD_IS_DEACTIVATED} due to {message}"


def deactivated_due_to(cause: str) -> str:
    return f"DeactivatedDueTo{cause}"


def evicted_event(reason: str) -> str:
    return f"EvictedDueTo{reason}"
