"""Events of jobs that queues manage, and messages about their labels and annotations."""

from __future__ import annotations

from torchyard.api.queue import names

EVENT_CREATED_WORKLOAD = "CreatedWorkload"
EVENT_STARTED = "Started"
EVENT_STOPPED = "Stopped"
EVENT_FINISHED_WORKLOAD = "FinishedWorkload"
EVENT_UPDATED_WORKLOAD = "UpdatedWorkload"
EVENT_DELETED_WORKLOAD = "DeletedWorkload"
EVENT_EXCESS_POD_DELETED = "ExcessPodDeleted"
EVENT_COMPOSE_ERROR = "ErrWorkloadCompose"
EVENT_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound"
WORKLOAD_IS_DELETED = "Workload is deleted"
NOT_ADMITTED = "Not admitted by cluster queue"
JOB_FINISHED_SUCCESSFULLY = "Job finished successfully"

# Invalid labels and annotations of jobs: the message, and a hint.
MAX_SECONDS_HINT = "set it to a number of seconds, 1 or more"
POD_GROUP_SIZE_ERROR = f"the pods of a group must have the same annotation {names.POD_GROUP_SIZE}"
POD_GROUP_SIZE_HINT = "set it to the number of pods of the group, 1 or more, in each of them"
POD_GROUP_QUEUES_ERROR = f"the pods of a group must have the same label {names.QUEUE_NAME}"
POD_GROUP_QUEUES_HINT = "delete the pods of the other queue and create them again"
EXCESS_POD_DELETED = "Excess pod deleted"
POD_GROUP_INCOMPLETE = f"both the '{names.POD_GROUP_SIZE}' annotation and the '{names.POD_GROUP}' label should be set"
EMPTY_QUEUE = "must be the name of a LocalQueue; remove the label to start without a queue"
PRIORITY_CLASS_REMOVED = "WorkloadPriorityClass cannot be removed from a workload"
PRIORITY_CLASS_ADDED = "WorkloadPriorityClass cannot be added to a non-suspended workload"
NOT_A_BOOLEAN = "must be true or false"
SYNC_NEEDS_INDEXES = "should not be enabled for NonIndexed jobs; set spec.completionMode to Indexed"
SYNC_NEEDS_EQUAL_COUNTS = f"should be equal to parallelism when {names.SYNC_COMPLETIONS} is true"
# Which kinds of jobs an annotation is for.
ELASTIC_ONLY_BATCH_JOBS = (
    "is supported for batch Jobs only; a PyTorchJob starts with the workers that fit, at least its"
    " elasticPolicy.minReplicas"
)
ELASTIC_EXCLUDES_MIN_PARALLELISM = f"cannot be combined with {names.MIN_PARALLELISM}; remove one of them"
IMMUTABLE_WHILE_RUNNING = "while the job is not suspended"


def job_component(framework: str) -> str:
    """The event source for jobs, for example `batch/job-kueue-controller`."""
    return f"{framework}-kueue-controller"


def admitted_by(cluster_queue: str) -> str:
    return f"Admitted by clusterQueue {cluster_queue}"


def created_workload(namespace: str, name: str) -> str:
    return f"Created Workload: {namespace}/{name}"


def updated_workload(namespace: str, name: str) -> str:
    return f"Updated workload: {namespace}/{name}"


def deleted_workload(namespace: str, name: str) -> str:
    return f"Deleted not matching Workload: {namespace}/{name}"


def workload_finished(namespace: str, name: str) -> str:
    return f"Workload '{namespace}/{name}' is declared finished"


def pods_succeeded(succeeded: int, total: int) -> str:
    return f"Pods succeeded: {succeeded}/{total}."


def pod_group_too_small(group: str) -> str:
    return f"'{group}' group has fewer runnable pods than expected"


def workload_of_another_job(namespace: str, name: str) -> str:
    return f"the Workload {namespace}/{name} belongs to another job; use another value of the label {names.POD_GROUP}"


def label_without_effect(kind: str) -> str:
    return (
        f"metadata.labels[{names.QUEUE_NAME}]: no effect on a {kind};"
        f" set {names.QUEUE_NAME} in the metadata of its template, which queues what it creates"
    )


def placeholder_queue(value: str, example: str) -> str:
    return (
        f'replace the placeholder in "{value}" with the name of your queue, for example {example};'
        " `kubectl get localqueues` lists the queues"
    )


def priority_class_not_found(name: str) -> str:
    return f'WorkloadPriorityClass "{name}" not found: create it, or use one that `kubectl get wpc` lists'


def invalid_max_seconds(value: str) -> str:
    return f"the label {names.MAX_SECONDS}={value!r} is not a valid number of seconds"


def invalid_min_parallelism(value: str) -> str:
    return f"the annotation {names.MIN_PARALLELISM}={value!r} is not a valid number of pods"


def min_parallelism_hint(parallelism: int) -> str:
    if parallelism < 2:
        return "remove it: a job with one pod at a time cannot start with fewer"
    return f"set it to a number from 1 to {parallelism - 1}, which is less than the parallelism"


def conflicting_value(field: str, key: str, in_job: str, in_admission: str) -> str:
    return f"the {field} {key} is {in_job!r} in the job but {in_admission!r} in its admission"
