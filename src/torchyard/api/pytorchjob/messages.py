"""Reasons, messages and events of a PyTorchJob, as training-operator 1.7 and later write them."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.field_errors import FieldError

CREATED, RUNNING, RESTARTING, SUCCEEDED, FAILED, SUSPENDED = (
    "Created",
    "Running",
    "Restarting",
    "Succeeded",
    "Failed",
    "Suspended",
)
TERMINAL = (SUCCEEDED, FAILED)

IS_CREATED = "PyTorchJobCreated"
IS_RUNNING = "PyTorchJobRunning"
IS_RESTARTING = "PyTorchJobRestarting"
HAS_SUCCEEDED = "PyTorchJobSucceeded"
HAS_FAILED = "PyTorchJobFailed"
IS_SUSPENDED = "PyTorchJobSuspended"
IS_RESUMED = "PyTorchJobResumed"
NOT_VALID = "PyTorchJobFailedValidation"  # upstream's, until it added a webhook

POD_CREATED, POD_NOT_CREATED = "SuccessfulCreatePod", "FailedCreatePod"
POD_DELETED, POD_NOT_DELETED = "SuccessfulDeletePod", "FailedDeletePod"
SERVICE_CREATED, SERVICE_NOT_CREATED = "SuccessfulCreateService", "FailedCreateService"
SERVICE_DELETED, SERVICE_NOT_DELETED = "SuccessfulDeleteService", "FailedDeleteService"
POD_GROUP_NOT_CREATED = "FailedCreatePodGroup"
SECRET_NOT_CREATED = "FailedCreateSecret"  # noqa: S105  # a reason of events
AUTOSCALER_NOT_CREATED, AUTOSCALER_NOT_DELETED = "FailedCreateAutoscaler", "FailedDeleteAutoscaler"
POD_GROUP_DELETED, POD_GROUP_NOT_DELETED = "SuccessfulDeletePodGroup", "FailedDeletePodGroup"
EXITED = "ExitedWithCode"
TERMINATED = "JobTerminated"
RESTART_POLICY_SET = "SetPodTemplateRestartPolicy"
OUT_OF_RANGE = "ReplicasOutOfRange"  # ours; upstream has no event for these
SCHEDULER_SET = "SetPodTemplateSchedulerName"

POD_GROUP_GOES = "Job has been terminated. Deleting PodGroup"
RESTART_POLICY_OVERWRITTEN = "Restart policy in pod template will be overwritten by restart policy in replica spec"
OTHER_SCHEDULER = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"


def not_valid(errs: Iterable[FieldError]) -> str:
    return f"PyTorchJob failed validation because {'; '.join(str(err) for err in errs)}"


def created(name: str) -> str:
    return f"PyTorchJob {name} is created."


def running(name: str, namespace: str, *, with_master: bool) -> str:
    return f"PyTorchJob {name} is running." if with_master else f"PyTorchJob {namespace}/{name} is running."


def succeeded(name: str, namespace: str, *, with_master: bool) -> str:
    if with_master:
        return f"PyTorchJob {name} is successfully completed."
    return f"PyTorchJob {namespace}/{name} successfully completed."


def suspended(name: str) -> str:
    return f"PyTorchJob {name} is suspended."


def resumed(name: str) -> str:
    return f"PyTorchJob {name} is resumed."


def restarting(name: str, replica_type: str) -> str:
    return f"job {name} is restarting because {replica_type} replica(s) failed."


def replicas_restarting(name: str, replica_type: str, count: int) -> str:
    return f"PyTorchJob {name} is restarting because {count} {replica_type} replica(s) failed."


def replicas_failed(name: str, replica_type: str, count: int) -> str:
    return f"PyTorchJob {name} is failed because {count} {replica_type} replica(s) failed."


def failed_for_good(name: str, replica_type: str) -> str:
    return f'job "{name}" is failing because "{replica_type}" replica(s) failed.'


def past_backoff(name: str) -> str:
    return f"Job {name} has failed because it has reached the specified backoff limit"


def past_deadline(name: str) -> str:
    return f"Job {name} has failed because it was active longer than specified deadline"


def exited(namespace: str, pod: str, code: int) -> str:
    return f"Pod: {namespace}.{pod} exited with code {code}"


def container_waits(pod: str, container: str, message: str) -> str:
    return f"Error pod {pod} container {container} waiting message: {message}"


def container_ended(pod: str, container: str, code: int, message: str) -> str:
    return f"Error pod {pod} container {container} exitCode: {code} terminated message: {message}"


def pod_created(pod: str) -> str:
    return f"Created pod: {pod}"


def pod_deleted(pod: str) -> str:
    return f"Deleted pod: {pod}"


def service_created(service: str) -> str:
    return f"Created service: {service}"


def service_deleted(service: str) -> str:
    return f"Deleted service: {service}"


def pod_group_deleted(group: str) -> str:
    return f"Deleted PodGroup: {group}"


def job_deleted(job: str) -> str:
    return f"Deleted job: {job}"


def not_created(why: str) -> str:
    return f"Error creating: {why}"


def not_deleted(why: str) -> str:
    return f"Error deleting: {why}"


def out_of_range(workers: int, min_replicas: int, max_replicas: int) -> str:
    prefix = f"Worker.replicas is {workers}, but elasticPolicy."
    if workers > max_replicas:
        return f"{prefix}maxReplicas is {max_replicas}: the additional workers wait until a member leaves"
    return f"{prefix}minReplicas is {min_replicas}: training waits for more workers"


def pod_hindered(pod: str, message: str) -> str:
    return f"Error pod {pod} condition message: {message}"
