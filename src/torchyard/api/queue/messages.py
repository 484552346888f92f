"""Every condition type, reason, event and message of the queues, each defined once.

Texts that Kueue has are Kueue's, letter for letter. A text with a hint after it (what to create, which queues exist)
ends with a part of our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api.queue import names


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

# The condition Active of queues and admission checks, and its reasons.
ACTIVE = "Active"
REASON_READY = "Ready"
REASON_STOPPED = "Stopped"
REASON_TERMINATING = "Terminating"
REASON_FLAVOR_NOT_FOUND = "FlavorNotFound"
REASON_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
REASON_CHECK_INACTIVE = "AdmissionCheckInactive"
REASON_COHORT_CYCLE = "CohortCycle"
REASON_CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"
REASON_CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"

# Event sources and event reasons.
COMPONENT_SCHEDULER = "kueue-admission"
COMPONENT_WORKLOADS = "kueue-workload-controller"
COMPONENT_LOCAL_QUEUES = "torchyard-local-queues"
EVENT_CREATED_WORKLOAD = "CreatedWorkload"
EVENT_STARTED = "Started"
EVENT_STOPPED = "Stopped"
EVENT_FINISHED_WORKLOAD = "FinishedWorkload"
EVENT_UPDATED_WORKLOAD = "UpdatedWorkload"
EVENT_DELETED_WORKLOAD = "DeletedWorkload"
EVENT_COMPOSE_ERROR = "ErrWorkloadCompose"
EVENT_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound"
EVENT_PREEMPTED_WORKLOAD = "PreemptedWorkload"
EVENT_CHECK_REJECTED = "AdmissionCheckRejected"
EVENT_LOCAL_QUEUE_CREATED = "LocalQueueCreated"

# Kueue's messages without parameters.
WORKLOAD_IS_ADMITTED = "The workload is admitted"
WORKLOAD_HAS_NO_RESERVATION = "The workload has no reservation"
WORKLOAD_IS_DEACTIVATED = "The workload is deactivated"
WORKLOAD_WAS_REACTIVATED = "The workload was reactivated"
WORKLOAD_IS_DELETED = "Workload is deleted"
CHECKS_NOT_READY = "The workload has not all checks ready"
CHECK_RESET = "Reset to Pending"
PODS_NOT_READY = "Not all pods are ready or succeeded"
ALL_PODS_READY = "All pods reached readiness and the workload is running"
WAITING_FOR_POD_RECOVERY = "At least one pod has failed, waiting for recovery"
WAITING_FOR_ALL_PODS_READY = "waiting for all admitted workloads to be in PodsReady condition"
BACKOFF_WAS_FINISHED = "The workload backoff was finished"
NO_LONGER_FITS = "Workload no longer fits after processing another workload"
OVERLAPPING_TARGETS = "Workload has overlapping preemption targets with another workload"
NOT_ADMITTED = "Not admitted by cluster queue"
JOB_FINISHED_SUCCESSFULLY = "Job finished successfully"
CLUSTER_QUEUE_IS_TERMINATING = "Can't admit new workloads; clusterQueue is terminating"
CLUSTER_QUEUE_STOPPED = "The ClusterQueue is stopped"
LOCAL_QUEUE_STOPPED = "The LocalQueue is stopped"
NAMESPACE_MISMATCH = "workload namespace doesn't match ClusterQueue selector"
CLUSTER_QUEUE_IS_STOPPED = "is stopped"
CAN_ADMIT = "Can admit new workloads"
CAN_SUBMIT = "Can submit new workloads to localQueue"
LOCAL_STOPPED = "LocalQueue is stopped"
CANNOT_SUBMIT = "Can't submit new workloads to clusterQueue"
REQUESTS_ABOVE_LIMITS = "requests must not exceed its limits"
ABOVE_LIMIT_RANGE_MAX = "requests must not be above the limitRange max"
BELOW_LIMIT_RANGE_MIN = "requests must not be below the limitRange min"

# Our own.
NOT_EVALUATED = "the scheduler has not evaluated it yet"
CREATE_CLUSTER_QUEUE_HINT = (
    "; create it, or use a LocalQueue of another ClusterQueue: `kubectl get localqueues` shows the ClusterQueue of each"
)
WORKLOAD_CHANGED = "the workload changed at the same time"
NO_NAMESPACE_SELECTED = (
    "spec.namespaceSelector is null: no namespace may use this queue; use {} to select all namespaces"
)


def condition_reason(cause: str) -> str:
    """The reason of QuotaReserved=False for a cause."""
    return _CONDITION_REASONS.get(cause, REASON_PENDING)


def job_component(framework: str) -> str:
    """The event source for jobs, for example `batch/job-kueue-controller`."""
    return f"{framework}-kueue-controller"


def quota_reserved(cluster_queue: str) -> str:
    return f"Quota reserved in ClusterQueue {cluster_queue}"


def quota_reserved_event(cluster_queue: str, seconds: float, flavors: str) -> str:
    return f"{quota_reserved(cluster_queue)}, wait time since queued was {seconds:.0f}s; Flavors considered: {flavors}"


def admitted_event(cluster_queue: str, seconds: float) -> str:
    return f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {seconds:.0f}s"


def admitted_by(cluster_queue: str) -> str:
    return f"Admitted by clusterQueue {cluster_queue}"


def created_workload(namespace: str, name: str) -> str:
    return f"Created Workload: {namespace}/{name}"


def updated_workload(namespace: str, name: str) -> str:
    return f"Updated workload: {namespace}/{name}"


def deleted_workload(namespace: str, name: str) -> str:
    return f"Deleted not matching Workload: {namespace}/{name}"


def slice_replaced(namespace: str, name: str) -> str:
    return f"Replaced to accommodate a new workload slice: {namespace}/{name}"


def workload_finished(namespace: str, name: str) -> str:
    return f"Workload '{namespace}/{name}' is declared finished"


def pods_succeeded(succeeded: int, total: int) -> str:
    return f"Pods succeeded: {succeeded}/{total}."


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


def quota_held_for(cluster_queues: Iterable[str]) -> str:
    return (
        "; the quota left to borrow is reserved for the first pending workload of its owner, StrictFIFO ClusterQueue"
        f" {', '.join(sorted(cluster_queues))}"
    )


WAITS_FOR_ITS_TURN = "enough quota is unused; it waits for its turn"
NEVER_FITS = "it can never fit"


def waits_to_be_requeued(at: str) -> str:
    return f"it is queued again at {at}, because its pods were not ready in time"


def position_in_queue(position: int, cluster_queue: str) -> str:
    return f"position {position} in ClusterQueue {cluster_queue} (0 is next)"


def quota_missing(resource: str, flavor: str, requested: str, missing: str, used_by: Iterable[tuple[str, str]]) -> str:
    users = ", ".join(f"{name} ({amount})" for name, amount in used_by)
    text = f"{missing} of the requested {requested} {resource} are missing in flavor {flavor}"
    return f"{text}, used by {users}" if users else text


def quota_never_suffices(resource: str, flavor: str, requested: str, missing: str) -> str:
    return f"{requested} {resource} are {missing} more than its queue can ever have in flavor {flavor}"


def quota_held_by(workloads: Iterable[str]) -> str:
    return f"held by {', '.join(workloads)}"


def start_estimate(seconds: float, deviation: float) -> str:
    return f"likely to start in {seconds:.0f} s ± {deviation:.0f} s"


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


def available_queues(local_queues: Iterable[str]) -> str:
    names = ", ".join(sorted(local_queues))
    if not names:
        return "; this namespace has no LocalQueue; create one that refers to a ClusterQueue"
    return f"; LocalQueues in this namespace: {names}"


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
    return f"The maximum execution time ({seconds}s) exceeded"


def requeue_limit(count: int) -> str:
    return f"exceeding the maximum number of re-queuing retries ({count})"


def deactivated_because(message: str) -> str:
    return f"{WORKLOAD_IS_DEACTIVATED} due to {message}"


def deactivated_due_to(cause: str) -> str:
    return f"DeactivatedDueTo{cause}"


def evicted_event(reason: str) -> str:
    return f"EvictedDueTo{reason}"


def cannot_admit(why: str) -> str:
    return f"Can't admit new workloads: {why}."


def missing_flavors(flavors: Iterable[str]) -> str:
    return f"references missing ResourceFlavor(s): {','.join(flavors)}"


def missing_checks(checks: Iterable[str]) -> str:
    return f"references missing AdmissionCheck(s): {','.join(checks)}"


def inactive_checks(checks: Iterable[str]) -> str:
    return f"references inactive AdmissionCheck(s): {','.join(checks)}"


def cohort_cycle(cohorts: Iterable[str]) -> str:
    return f"the cohorts {' -> '.join(cohorts)} form a cycle; give one of them another parentName"


_INACTIVE_HINTS = {
    REASON_FLAVOR_NOT_FOUND: " Create it, or use one that `kubectl get resourceflavors` lists",
    REASON_CHECK_NOT_FOUND: " Create it, or use one that `kubectl get admissionchecks` lists",
}


def inactive_advice(inactive: ReasonMessage) -> str:
    """Why a ClusterQueue is inactive, with what to do where its condition does not say it."""
    return f": {inactive.message}{_INACTIVE_HINTS.get(inactive.reason, '')}"


def namespace_advice(cluster_queue: str) -> str:
    return f"; ClusterQueue {cluster_queue} does not select this namespace by its labels"


LOCAL_QUEUE_STOPPED_ADVICE = ": its stopPolicy is set"


def never_fits(cluster_queue: str) -> str:
    return f"; it will never fit: request less, or raise the quota of ClusterQueue {cluster_queue}"


def gpu_products(products: Iterable[str]) -> str:
    return f"; this machine has {', '.join(sorted(products)) or 'no GPU'}"


def placeholder_queue(value: str, example: str) -> str:
    return (
        f'replace the placeholder in "{value}" with the name of your queue, for example {example};'
        " `kubectl get localqueues` lists the queues"
    )


def priority_class_not_found(name: str) -> str:
    return f'WorkloadPriorityClass "{name}" not found: create it, or use one that `kubectl get wpc` lists'


def local_queue_created(kind: str, name: str) -> str:
    return f"created {kind} {name} for this machine; `yard up --no-local-queues` turns this off"


# Invalid labels and annotations of jobs: the message, and a hint.
MAX_SECONDS_HINT = "set it to a number of seconds, 1 or more"
POD_GROUP_SIZE_ERROR = f"the pods of a group must have the same annotation {names.POD_GROUP_SIZE}"
POD_GROUP_SIZE_HINT = "set it to the number of pods of the group in each of them"


def invalid_max_seconds(value: str) -> str:
    return f"the label {names.MAX_SECONDS}={value!r} is not a valid number of seconds"


def invalid_min_parallelism(value: str) -> str:
    return f"the annotation {names.MIN_PARALLELISM}={value!r} is not a valid number of pods"


def min_parallelism_hint(parallelism: int) -> str:
    return f"set it to a number from 1 to {parallelism - 1}, which is less than the parallelism"


def conflicting_value(field: str, key: str, in_job: str, in_admission: str) -> str:
    return f"the {field} {key} is {in_job!r} in the job but {in_admission!r} in its admission"


# Which kinds of jobs an annotation is for.
ELASTIC_ONLY_BATCH_JOBS = (
    "is supported for batch Jobs only; a PyTorchJob starts with the workers that fit, at least its"
    " elasticPolicy.minReplicas"
)
ELASTIC_EXCLUDES_MIN_PARALLELISM = f"cannot be combined with {names.MIN_PARALLELISM}; remove one of them"
IMMUTABLE_WHILE_RUNNING = "while the job is not suspended"


# Whether and how a cluster's Kueue manages PyTorchJobs.
KUEUE_NOT_CHECKED = "not checked yet"
NO_KUEUE_MANAGER = "no Kueue manager is deployed: its CRDs alone admit nothing"


def kueue_not_served() -> str:
    return f"the API group {names.GROUP} is not served"


def kueue_versions_unsupported(served: Iterable[str]) -> str:
    return f"{names.GROUP} is served in {', '.join(served)}; {names.OLD} or {names.STORED} is needed"


def kueue_served(version: str) -> str:
    return f"{names.GROUP}/{version} is served"


def kueue_not_usable(why: object) -> str:
    return f"the API group {names.GROUP} is served, but {why}"


def kueue_version_needed() -> str:
    return (
        f"{names.GROUP}/{names.STORED} is not served: only Kueue's built-in integration can create workloads for jobs"
    )


def webhook_found(webhook: str, kind: str) -> str:
    return f"the webhook {webhook} exists: Kueue's built-in integration for {kind} is on"


def webhook_not_found(webhook: str, kind: str) -> str:
    return f"the webhook {webhook} does not exist: Kueue leaves {kind} to an external integration"


def configuration_not_readable(framework: str) -> str:
    return f"Kueue's configuration cannot be read; ask the administrator to list {framework} in it"


def framework_not_listed(framework: str) -> str:
    return f"list {framework} under integrations.externalFrameworks, or Kueue may queue the pods a second time"


# Kueue's configuration file.
TOPOLOGIES_UNSUPPORTED = "topologies are not supported; remove the field"
MULTIKUEUE_UNSUPPORTED = "MultiKueue is not supported; remove the field or use another controller"
PROVISIONING_REQUESTS_UNSUPPORTED = "ProvisioningRequests are not supported; remove the check or use another controller"
CONCURRENT_ADMISSION_UNSUPPORTED = "concurrent admission is not supported; remove the field"
CONFIGURATION_HINT = "correct or remove these fields"
CONFIGURATION_FIELD_UNSUPPORTED = "not supported by the queues of this plane"
CONFIGURATION_FIELD_UNKNOWN = "unknown field"
CONFIGURATION_NEGATIVE_WEIGHT = "must be a number, 0 or more"
CONFIGURATION_NOT_A_MAPPING = "must be a mapping of fields to values"
CONFIGURATION_NOT_A_LIST = "must be a list of names"
CONFIGURATION_NOT_POSITIVE = "must be greater than 0"


def configuration_not_yaml(error: object) -> str:
    return f"the queue configuration is not valid YAML: {error}"


def configuration_invalid(errs: Iterable[str]) -> str:
    return f"the queue configuration is invalid: {'; '.join(errs)}"


# Parameters of the visibility API.
def invalid_count_parameter(name: str, value: str) -> str:
    return f"{name}={value!r} is not a number of workloads, 0 or more"
