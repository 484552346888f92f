"""How a PyTorchJob, a Job or a Pod stands, read from the object; who failed first, read from its pods."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pytorchjob.names import JOB_NAME

RUNNABLE = ("PyTorchJob", "Job", "Pod")
_TERMINAL_STATES = {"Succeeded": True, "Complete": True, "Failed": False}


@dataclass(frozen=True, slots=True)
class RunState:
    """`state` is one word; `done` says that it will not change any more."""

    state: str
    done: bool = False
    succeeded: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """A container that ended with an error."""

    pod: str
    container: str
    exit_code: int
    reason: str
    at: str
    message: str = ""


def run_state(obj: Object) -> RunState:
    """How an object of one of the `RUNNABLE` kinds stands."""
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
    """The label selector and the field selector that find the pods of an object."""
    metadata = obj["metadata"]
    if obj["kind"] == "Pod":
        return "", f"metadata.name={metadata['name']}"
    if obj["kind"] == "PyTorchJob":
        return f"{JOB_NAME}={metadata['name']}", ""
    labels = obj["spec"]["selector"]["matchLabels"]
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())), ""


def short_name(pod: str, owner: str) -> str:
    """What a replica is called beside its siblings: `master-0`."""
    return pod.removeprefix(f"{owner}-")


def first_failure(pods: list[Object]) -> ContainerFailure | None:
    """The container whose failure came first; the others usually only follow it."""
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
    """What a shell should see: 0, or the first failed container's code where there is one."""
    if result.succeeded:
        return 0
    return failure.exit_code if failure is not None else 1


def pending_reason(pod: Object) -> str:
    """Why a pod does not run yet, in the words of whoever holds it up; empty when nothing does."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    return ""
