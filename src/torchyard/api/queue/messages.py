"""Every condition, reason, event and message of queues, each once, in the words of Kueue."""

from __future__ import annotations

from collections.abc import Iterable

# Conditions of a workload, and their reasons.
QUOTA_RESERVED, ADMITTED, PODS_READY, EVICTED, PREEMPTED, REQUEUED, FINISHED, DEACTIVATION = (
    "QuotaReserved",
    "Admitted",
    "PodsReady",
    "Evicted",
    "Preempted",
    "Requeued",
    "Finished",
    "DeactivationTarget",
)
NO_FLAVOR, WAITING, TOO_BIG, WAITING_FOR_PREEMPTED, MISCONFIGURED, SUSPENDED, ON_HOLD, WAITING_FOR_PODS = (
    "NoMatchingFlavor",
    "WaitingForQuota",
    "ExceedsMaxQuota",
    "WaitingForPreemptedWorkloads",
    "Misconfigured",
    "Suspended",
    "OnHold",
    "WaitingForPodsReady",
)
NO_RESERVATION = "NoReservation"
WAIT_FOR_START, STARTED, WAIT_FOR_RECOVERY, RECOVERED = "WaitForStart", "Started", "WaitForRecovery", "Recovered"
BY_PREEMPTION, BY_PODS_READY, BY_CHECK, BY_CLUSTER_QUEUE, BY_LOCAL_QUEUE, BY_DEACTIVATION = (
    "Preempted",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "Deactivated",
)
IN_QUEUE, IN_COHORT, WHILE_BORROWING = "InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing"
BACKOFF_FINISHED, REACTIVATED = "BackoffFinished", "Reactivated"
SUCCEEDED, FAILED, NOT_STARTED, REPLACED = "Succeeded", "Failed", "FailedToStart", "WorkloadSliceReplaced"
REQUEUE_LIMIT, TIME_LIMIT = "RequeuingLimitExceeded", "MaximumExecutionTimeExceeded"

IS_ADMITTED = "The workload is admitted"
HAS_NO_RESERVATION = "The workload has no reservation"
CHECKS_NOT_READY = "The workload has not all checks ready"
PODS_NOT_READY = "Not all pods are ready or succeeded"
PODS_ARE_READY = "All pods reached readiness and the workload is running"
POD_LOST = "At least one pod has failed, waiting for recovery"
DEACTIVATED = "The workload is deactivated"
BACKOFF_OVER = "The workload backoff was finished"
NO_LONGER_FITS = "Workload no longer fits after processing another workload"
SAME_TARGETS = "Workload has overlapping preemption targets with another workload"
OTHERS_NOT_READY = "waiting for all admitted workloads to be in PodsReady condition"
CREATE_IT = "; create it, or use a queue that leads to another: `kubectl get localqueues` shows where they lead"
IS_REACTIVATED = "The workload was reactivated"
NOT_MATCHING = "No matching Workload; restoring pod templates according to existing Workload"
IS_DELETED = "Workload is deleted"
CHECK_SAID_RETRY = "At least one admission check is false"

# The condition `Active` of queues and checks.
ACTIVE, READY, STOPPED, TERMINATING = "Active", "Ready", "Stopped", "Terminating"
FLAVOR_MISSING, CHECK_MISSING, CHECK_INACTIVE = "FlavorNotFound", "AdmissionCheckNotFound", "AdmissionCheckInactive"
COHORT_CYCLE = "CohortCycle"
QUEUE_INACTIVE, QUEUE_MISSING = "ClusterQueueIsInactive", "ClusterQueueDoesNotExist"
CAN_ADMIT = "Can admit new workloads"
CAN_SUBMIT = "Can submit new workloads to localQueue"
LOCAL_STOPPED = "LocalQueue is stopped"
CANNOT_SUBMIT = "Can't submit new workloads to clusterQueue"

# Who tells, and the events.
SCHEDULER, WORKLOADS, CONVENIENCES = "kueue-admission", "kueue-workload-controller", "torchyard-local-queues"
CREATED, JOB_STARTED, JOB_STOPPED, JOB_FINISHED, UPDATED, DELETED, NOT_COMPOSED, NO_PRIORITY_CLASS = (
    "CreatedWorkload",
    "Started",
    "Stopped",
    "FinishedWorkload",
    "UpdatedWorkload",
    "DeletedWorkload",
    "ErrWorkloadCompose",
    "WorkloadPriorityClassNotFound",
)
PENDING, PREEMPTED_OTHER, CHECK_REJECTED = "Pending", "PreemptedWorkload", "AdmissionCheckRejected"
QUEUE_MADE = "LocalQueueCreated"


def framework(name: str) -> str:
    """Who tells about jobs: `batch/job-kueue-controller`."""
    return f"{name}-kueue-controller"


def reserved(queue: str) -> str:
    return f"Quota reserved in ClusterQueue {queue}"


def reserved_event(queue: str, seconds: float, flavors: str) -> str:
    return f"{reserved(queue)}, wait time since queued was {seconds:.0f}s; Flavors considered: {flavors}"


def admitted_event(queue: str, seconds: float) -> str:
    return f"Admitted by ClusterQueue {queue}, wait time since reservation was {seconds:.0f}s"


def started(queue: str) -> str:
    return f"Admitted by clusterQueue {queue}"


def created(namespace: str, name: str) -> str:
    return f"Created Workload: {namespace}/{name}"


def updated(namespace: str, name: str) -> str:
    return f"Updated workload: {namespace}/{name}"


def deleted(namespace: str, name: str) -> str:
    return f"Deleted not matching Workload: {namespace}/{name}"


def replaced(namespace: str, name: str) -> str:
    return f"Replaced to accommodate a new workload slice: {namespace}/{name}"


def finished(namespace: str, name: str) -> str:
    return f"Workload '{namespace}/{name}' is declared finished"


def not_assigned(pod_set: str, why: str) -> str:
    return f"couldn't assign flavors to pod set {pod_set}: {why}"


def insufficient(resource: str, flavor: str, missing: str) -> str:
    return f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"


def kept_for(queues: Iterable[str]) -> str:
    first = ", ".join(sorted(queues))
    return f"what is left to borrow is kept for the first in line of ClusterQueue {first}, whose own quota it is"


def beyond(resource: str, flavor: str, *, before: str, asked: str, limit: str) -> str:
    return (
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({before})"
        f" + current podset request ({asked}) > maximum capacity ({limit})"
    )


def no_affinity(flavor: str) -> str:
    return f"flavor {flavor} doesn't match node affinity"


def untolerated(taint: str, flavor: str) -> str:
    return f"untolerated taint {taint} in flavor {flavor}"


def flavor_missing(flavor: str) -> str:
    return f"flavor {flavor} not found"


def other_flavor(flavor: str) -> str:
    return f"flavor {flavor} is not the one the job runs in"


def uncovered(resource: str) -> str:
    return f"resource {resource} unavailable in ClusterQueue"


def absent(kind: str, name: str) -> str:
    return f"{kind} {name} doesn't exist"


def inactive(kind: str, name: str) -> str:
    return f"{kind} {name} is inactive"


def stopped(kind: str, name: str) -> str:
    return f"{kind} {name} is stopped"


def namespace_refused(queue: str) -> str:
    return f"Workload namespace doesn't match ClusterQueue {queue} selector"


def other_queues(names: str) -> str:
    if not names:
        return "; this namespace has no queue yet: create one that leads to a ClusterQueue"
    return f"; queues of this namespace: {names}"


_WHY = {
    IN_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT: "reclamation within the cohort",
    WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def preempted(reason: str, *, uid: str, job_uid: str, preemptor_path: str, preemptee_path: str) -> str:
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid or 'UNKNOWN'}) due to {_WHY[reason]};"
        f" preemptor path: {preemptor_path}; preemptee path: {preemptee_path}"
    )


def waiting_for_preempted(why: str, count: int) -> str:
    return f"{why}. Pending the preemption of {count} workload(s)"


def pods_ready_timeout(namespace: str, name: str) -> str:
    return f"Exceeded the PodsReady timeout {namespace}/{name}"


def time_exceeded(seconds: int) -> str:
    return f"The maximum execution time ({seconds}s) exceeded"


def requeue_limit(count: int) -> str:
    return f"exceeding the maximum number of re-queuing retries ({count})"


def deactivated_due_to(cause: str) -> str:
    return f"DeactivatedDueTo{cause}"


def evicted_event(reason: str) -> str:
    return f"EvictedDueTo{reason}"


def queue_stopped(name: str) -> str:
    return f"The ClusterQueue {name} is stopped"


def local_queue_stopped(name: str) -> str:
    return f"The LocalQueue {name} is stopped"


def cannot_admit(why: str) -> str:
    return f"Can't admit new workloads: {why}."


def flavors_missing(names: list[str]) -> str:
    return f"references missing ResourceFlavor(s): {','.join(names)}"


def checks_missing(names: list[str]) -> str:
    return f"references missing AdmissionCheck(s): {','.join(names)}"


def checks_inactive(names: list[str]) -> str:
    return f"references inactive AdmissionCheck(s): {','.join(names)}"


_FIXES = {
    FLAVOR_MISSING: " Create it, or use one that `kubectl get resourceflavors` lists",
    CHECK_MISSING: " Create it, or use one that `kubectl get admissionchecks` lists",
}


def fix(reason: str) -> str:
    """What helps a queue that is not active, where its condition does not say so itself."""
    return _FIXES.get(reason, "")


def never_fits(queue: str) -> str:
    return f"; it will never fit: ask for less, or raise the quota of ClusterQueue {queue}"


def cycle(names: list[str]) -> str:
    return f"the cohorts {' -> '.join(names)} form a cycle; give one of them another parentName"


def placeholder(value: str, example: str) -> str:
    return (
        f'replace the placeholder in "{value}" by your own queue, e.g. {example}; `kubectl get localqueues` lists them'
    )


def no_such_class(name: str) -> str:
    return f'WorkloadPriorityClass "{name}" not found: create it, or use one that `kubectl get wpc` lists'
