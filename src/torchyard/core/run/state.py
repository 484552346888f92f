"""The state of a PyTorchJob, a Job or a Pod, and the first failure among its pods."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pytorchjob.names import JOB_NAME

RUNNABLE = ("PyTorchJob", "Job", "Pod")
_TERMINAL_STATES = {"Succeeded": True, "Complete": True, "Failed": False}


@dataclass(frozen=True, slots=True)
class RunState:
    """`state` is one word; `done` means that it is final."""

    state: str
    done: bool = False
    succeeded: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """A container that exited with an error."""

    pod: str
    container: str
    exit_code: int
    reason: str
    at: str
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
    if obj["kind"] == "Job":
        return RunState("Running" if status.get("active") else "Pending")
    progress = [condition for condition in true_conditions if condition["type"] in ("Running", "Restarting")]
    if progress:
        return RunState(progress[-1]["type"], message=progress[-1].get("message") or "")
    return RunState("Pending")


def pods_of(obj: Object) -> tuple[str, str]:
    """The label selector and the field selector that select the pods of an object."""
    metadata = obj["metadata"]
    if obj["kind"] == "Pod":
        return "", f"metadata.name={metadata['name']}"
    if obj["kind"] == "PyTorchJob":
        return f"{JOB_NAME}={metadata['name']}", ""
    labels = obj["spec"]["selector"]["matchLabels"]
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())), ""


def short_name(pod: str, owner: str) -> str:
    """The name of a replica without its job: `master-0`."""
    return pod.removeprefix(f"{owner}-")


def first_failure(pods: list[Object]) -> ContainerFailure | None:
    """The container that failed first; the other failures usually follow from it."""
    failures = []
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (container.get("state"), container.get("lastState")):
                ended = (state or {}).get("terminated")
                if ended and ended.get("exitCode"):
                    at, reason, message = (
                        ended.get("finishedAt") or "",
                        ended.get("reason") or "",
                        ended.get("message") or "",
                    )
                    failures.append(
                        ContainerFailure(
                            pod["metadata"]["name"], container["name"], ended["exitCode"], reason, at, message
                        )
                    )
    return min(failures, key=lambda failure: failure.at, default=None)


def exit_code(result: RunState, failure: ContainerFailure | None) -> int:
    """The exit code for a shell: 0, or the first failed container's code if there is one."""
    if result.succeeded:
        return 0
    return failure.exit_code if failure is not None else 1


def pending_reason(pod: Object) -> str:
    """Why a pod does not run yet, as its conditions and containers say; empty if nothing holds it up."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    return ""
