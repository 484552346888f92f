"""Table columns of pods. The status column follows upstream's printPod."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import AGE, NAME, NONE, age, age_of, container_names_and_images, format_labels, name_of

_COLUMNS = (
    NAME,
    Column("Ready", description="The number of ready containers and of all containers."),
    Column("Status", description="The state of the pod, or the reason why it does not run."),
    Column("Restarts", description="How often containers restarted, and when last."),
    AGE,
    Column("IP", description="The address of the pod.", priority=1),
    Column("Node", description="The node of the pod.", priority=1),
    Column("Nominated Node", description="The node on which pods are preempted for this pod.", priority=1),
    Column("Readiness Gates", description="The readiness gates that are true and all readiness gates.", priority=1),
)

_COMPLETED = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


class _Summary:
    """Values that are collected while iterating over a pod's containers."""

    __slots__ = ("last_restart", "ready", "reason", "restarts")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""

    def count_restarts(self, container: Object) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        # Timestamps of the same format compare as text.
        self.last_restart = max(self.last_restart, ended)


def cells(pod: Object, now: datetime) -> list[Cell]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or []
    summary = _summary(pod, spec, status)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts = f"{restarts} ({age(summary.last_restart, now)} ago)"
    total = len(spec.get("containers") or ()) + sum(
        1 for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    )
    addresses = status.get("podIPs") or ({"ip": status.get("podIP")},)
    return [
        name_of(pod),
        f"{summary.ready}/{total}",
        summary.reason,
        restarts,
        age_of(pod, now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec.get("readinessGates") or [], conditions),
    ]


def status_of(pod: Object) -> str:
    """The status column alone."""
    return _summary(pod, pod.get("spec") or {}, pod.get("status") or {}).reason


def _summary(pod: Object, spec: Object, status: Object) -> _Summary:
    phase, conditions = status.get("phase") or "", status.get("conditions") or ()
    summary = _Summary(status.get("reason") or phase)
    initialized = ready = False
    for condition in conditions:
        match condition.get("type"):
            case "PodScheduled" if condition.get("reason") == "SchedulingGated":
                summary.reason = "SchedulingGated"
            case "Initialized":
                initialized = condition.get("status") == "True"
            case "Ready":
                ready = condition.get("status") == "True"
    sidecars = _Summary("")
    initializing = bool(status.get("initContainerStatuses")) and _initialize(spec, status, summary, sidecars)
    if not initializing or initialized:
        summary.restarts, summary.last_restart = sidecars.restarts, sidecars.last_restart
        _run(status.get("containerStatuses") or [], summary, ready)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _initialize(spec: Object, status: Object, summary: _Summary, sidecars: _Summary) -> bool:
    """Iterate over the init containers up to the first that is not done. Return whether there is one."""
    declared = spec.get("initContainers") or ()
    restartable = {container.get("name") for container in declared if container.get("restartPolicy") == "Always"}
    for index, container in enumerate(status["initContainerStatuses"]):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        is_sidecar = container.get("name") in restartable
        summary.count_restarts(container)
        if is_sidecar:
            sidecars.count_restarts(container)
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.reason = f"Init:{_ending(terminated)}"
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            summary.reason = f"Init:{waiting['reason']}"
        else:
            summary.reason = f"Init:{index}/{len(declared)}"
        return True
    return False


def _run(statuses: list[Object], summary: _Summary, pod_is_ready: bool) -> None:
    """Iterate over the containers; the reason of the first one takes precedence."""
    any_runs = False
    for container in reversed(statuses):
        summary.count_restarts(container)
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            summary.reason = waiting["reason"]
        elif terminated is not None:
            summary.reason = _ending(terminated)
        elif container.get("ready") and "running" in state:
            any_runs = True
            summary.ready += 1
    if summary.reason == "Completed" and any_runs:
        summary.reason = "Running" if pod_is_ready else "NotReady"


def _ending(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(gates: list[Object], conditions: list[Object]) -> str:
    if not gates:
        return NONE
    # Of several conditions of the same type the first one counts.
    is_true = {condition.get("type"): condition.get("status") == "True" for condition in reversed(conditions)}
    return f"{sum(is_true.get(gate.get('conditionType'), False) for gate in gates)}/{len(gates)}"


def _conditions(pod: Object) -> list[Object]:
    return _COMPLETED.get((pod.get("status") or {}).get("phase", ""), [])


PODS = Columns(_COLUMNS, cells, _conditions)


def _template_cells(template: Object, now: datetime) -> list[Cell]:
    inner = template.get("template") or {}
    pod_labels = (inner.get("metadata") or {}).get("labels")
    return [name_of(template), *container_names_and_images(inner.get("spec") or {}), format_labels(pod_labels)]


POD_TEMPLATES = Columns(
    (
        NAME,
        Column("Containers", description="The containers of the template."),
        Column("Images", description="The images of the containers, in the same order."),
        Column("Pod Labels", description="The labels of the template."),
    ),
    _template_cells,
)
