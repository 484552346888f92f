"""Events of jobs that queues manage, and messages about their labels and annotations."""

from __future__ import annotations

from torchyard.api.queue import names

EVENT_CREATED_WORKLOAD = "CreatedWorkload"
EVENT_STARTED = "Started"
EVENT_STOPPED = "Stopped"
EVENT_FINISHED_WORKLOAD = "FinishedWorkload"
EVENT_UPDATED_WORKLOAD = "UpdatedWorkload"
EVENT_DELETED_WORKLOAD = "DeletedWorkload"
EVENT_COMPOSE_ERROR = "ErrWorkloadCompose"
EVENT_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound"
WORKLOAD_IS_DELETED = "Workload is deleted"
NOT_ADMITTED = "Not admitted by cluster queue"
JOB_FINISHED_SUCCESSFULLY = "Job finished successfully"

# Invalid labels and annotations of jobs: the message, and a hint.
MAX_SECONDS_HINT = "set it to a number of seconds, 1 or more"
POD_GROUP_SIZE_ERROR = f"the pods of a group must have the same annotation {names.POD_GROUP_SIZE}"
POD_GROUP_SIZE_HINT = "set it to the number of pods of the group in each of them"
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
    return f"set it to a number from 1 to {parallelism - 1}, which is less than the parallelism"


def conflicting_value(field: str, key: str, in_job: str, in_admission: str) -> str:
    return f"the {field} {key} is {in_job!r} in the job but {in_admission!r} in its admission"
