"""The state of a PyTorchJob, a TrainJob, a JobSet, a Job or a Pod, and which pods belong to it."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.jobset.names import JOBSET_NAME
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.names import JOB_NAME

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
RUNNABLE = ("PyTorchJob", "TrainJob", "JobSet", "Job", "Pod")
_ENDING = ("SuccessCriteriaMet", "FailureTarget")  # the last pods of a Job are being stopped
_TERMINAL_STATES = {"Succeeded": True, "Complete": True, "Completed": True, "Failed": False}  # Completed: of JobSets


@dataclass(frozen=True, slots=True)
class RunState:
    """`state` is one word; `done` means that it is final."""

    state: str
    done: bool = False
    succeeded: bool = False
    message: str = ""


def run_state(obj: Object) -> RunState:
    """The state of an object of one of the `RUNNABLE` kinds."""
    status = obj.get("status") or {}
    if obj["kind"] == "Pod":
        phase = status.get("phase") or "Pending"
        return RunState(phase, phase in _TERMINAL_STATES, phase == "Succeeded", status.get("message") or "")
    true_conditions = [condition for condition in status.get("conditions") or () if condition.get("status") == "True"]
    for condition in true_conditions:
        if condition["type"] in _TERMINAL_STATES:
            return RunState(
                condition["type"], True, _TERMINAL_STATES[condition["type"]], condition.get("message") or ""
            )
    if any(condition["type"] == "Suspended" for condition in true_conditions):
        return RunState("Suspended")
    if obj["kind"] in ("TrainJob", "JobSet"):
        return RunState("Running" if any(each.get("ready") for each in job_statuses(obj)) else "Pending")
    if obj["kind"] == "Job":
        return RunState("Running" if _runs(status, true_conditions) else "Pending")
    progress = [condition for condition in true_conditions if condition["type"] in ("Running", "Restarting")]
    if progress:
        return RunState(progress[-1]["type"], message=progress[-1].get("message") or "")
    return RunState("Pending")


def _runs(status: Object, true_conditions: list[Object]) -> bool:
    """Whether a pod of a Job runs: `active` counts the pods that wait to start too."""
    if any(condition["type"] in _ENDING for condition in true_conditions):
        return True
    return bool(status.get("ready", status.get("active")))


def job_statuses(obj: Object) -> list[Object]:
    """The counters of the replicated jobs of a JobSet or a TrainJob."""
    field = "jobsStatus" if obj["kind"] == "TrainJob" else "replicatedJobsStatus"
    return list((obj.get("status") or {}).get(field) or ())


def pods_of(obj: Object) -> tuple[str, str]:
    """The label selector and the field selector that select the pods of an object."""
    metadata = obj["metadata"]
    if obj["kind"] == "Pod":
        return "", f"metadata.name={metadata['name']}"
    if obj["kind"] == "PyTorchJob":
        return f"{JOB_NAME}={metadata['name']}", ""
    if obj["kind"] in ("TrainJob", "JobSet"):
        return f"{JOBSET_NAME}={metadata['name']}", ""
    labels = obj["spec"]["selector"]["matchLabels"]
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())), ""


def short_name(pod: str, owner: str) -> str:
    """The name of a replica without its job: `master-0`."""
    return pod.removeprefix(f"{owner}-")


def default_container(pod: Object) -> str:
    """The container whose log is shown if none is named, as kubectl chooses it."""
    names = [str(container["name"]) for container in pod["spec"]["containers"]]
    chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "")
    return chosen if chosen in names else names[0]


def belongs_to(pod: Object, uid: str) -> bool:
    """Whether a pod is the object with this uid or is owned by it, and not by an earlier object of the same name."""
    metadata = pod["metadata"]
    if uid in (metadata["uid"], *(owner["uid"] for owner in metadata.get("ownerReferences") or ())):
        return True
    # A Job owns the pods of a JobSet or a TrainJob; those of an earlier one of this name are being deleted.
    return JOBSET_NAME in (metadata.get("labels") or {}) and not metadata.get("deletionTimestamp")


def has_controller(obj: Object) -> bool:
    """Whether another object controls this one."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or ())


def suspend_patch(kind: str, *, suspended: bool) -> Object:
    """The merge patch that suspends or resumes a job of any kind but Pod."""
    policy = {"suspend": suspended}
    return {"spec": {"runPolicy": policy} if kind == "PyTorchJob" else policy}
