"""A pod's status as the kubelet writes it: phase, conditions, container statuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.pod import status_messages as messages
from torchyard.api.times import to_rfc3339
from torchyard.core.pod.decide import backoff, is_over, restart_time, restarts
from torchyard.core.pod.view import (
    Attempt,
    ContainerView,
    PodView,
    ephemeral_containers,
    init_containers,
    is_sidecar,
    main_containers,
)


def format_time(seconds: float) -> str:
    return to_rfc3339(datetime.fromtimestamp(seconds, UTC))


def pod_status(pod: Object, view: PodView, *, now: float) -> Object:
    """The whole status. Fields of other writers (the scheduler's condition, the QoS class) are kept."""
    before: Object = pod.get("status") or {}
    status: Object = {key: value for key, value in before.items() if key not in _KUBELET_FIELDS}
    inits = [container_status(pod, container, view, before, now=now) for container in init_containers(pod)]
    mains = [container_status(pod, container, view, before, now=now) for container in main_containers(pod)]
    phase = _phase(pod, view, before, inits, mains)
    # A pod deleted before its containers started has failed; its conditions still show how far it got.
    status["phase"] = "Failed" if phase == "Pending" and _is_stopped(pod, [*inits, *mains]) else phase
    if phase == "Failed" and (
        termination := view.ended or (messages.NODE_SHUTDOWN if _ended_with_node(view) else None)
    ):
        status["reason"], status["message"] = termination
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    if view.host_ip:
        status["hostIP"] = view.host_ip
        status["hostIPs"] = [{"ip": view.host_ip}]
    if view.ip:
        status["podIP"] = view.ip
        status["podIPs"] = [{"ip": view.ip}]
    if view.started is not None:
        status["startTime"] = before.get("startTime") or format_time(view.started)
    status["conditions"] = _conditions(pod, view, phase, inits=inits, mains=mains, now=now)
    if view.rejected:
        return status
    if inits:
        status["initContainerStatuses"] = inits
    status["containerStatuses"] = sorted(mains, key=lambda container: str(container["name"]))
    ephemeral = [container_status(pod, container, view, before, now=now) for container in ephemeral_containers(pod)]
    if ephemeral:
        status["ephemeralContainerStatuses"] = ephemeral
    return status


def own_part(status: Object) -> Object:
    """What the kubelet writes of a status. Others write the rest, such as readiness gates, at any time."""
    own = {key: value for key, value in status.items() if key in _KUBELET_FIELDS or key == "startTime"}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    own["conditions"] = [conditions[kind] for kind in _KUBELET_CONDITIONS if kind in conditions]
    disruption = conditions.get("DisruptionTarget")
    if disruption and disruption.get("reason") == messages.TERMINATION_BY_KUBELET:
        own["conditions"].append(disruption)
    return own


_KUBELET_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_KUBELET_FIELDS = {
    "phase", "conditions", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "reason",
    "message", "observedGeneration", "hostIP", "hostIPs", "podIP", "podIPs",
}  # fmt: skip


def container_status(pod: Object, container: Object, view: PodView, before: Object, *, now: float) -> Object:
    seen = view.of(container["name"])
    last = seen.last
    state = _state(pod, container, view, seen, now=now)
    last_state: Object = {}
    shown = last
    if "waiting" in state and last and last.exited:
        last_state = {"terminated": terminated(last)}
    elif len(seen.attempts) > 1 and seen.attempts[-2].exited:
        last_state = {"terminated": terminated(seen.attempts[-2])}
    running = "running" in state
    init = container in init_containers(pod)
    started = running and seen.started
    if init and not is_sidecar(container):
        ready = bool(last and last.succeeded)
        started = running
    else:
        ready = running and seen.started and seen.ready
    status: Object = {
        "name": container["name"],
        "state": state,
        "lastState": last_state,
        "ready": ready and container not in ephemeral_containers(pod),
        "restartCount": last.number if last else 0,
        "image": seen.image or container.get("image") or "",
        "imageID": seen.image_id,
    }
    if shown and shown.id:
        status["containerID"] = f"torchyard://{shown.id}"
    status["started"] = started
    resources = container.get("resources") or {}
    if resources and last:
        status["resources"] = resources
        if resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
    mounts = [_mount_status(mount) for mount in container.get("volumeMounts") or ()]
    if mounts:
        status["volumeMounts"] = mounts
    return status


def _mount_status(mount: Object) -> Object:
    status = {"mountPath": mount["mountPath"], "name": mount["name"]}
    if mount.get("readOnly"):
        status |= {"readOnly": True, "recursiveReadOnly": mount.get("recursiveReadOnly") or "Disabled"}
    return status


def _state(pod: Object, container: Object, view: PodView, seen: ContainerView, *, now: float) -> Object:
    last = seen.last
    over = bool(view.ended or pod["metadata"].get("deletionTimestamp")) or is_over(pod, view)
    if last is None or last.state == "starting":
        reason = messages.POD_INITIALIZING if _waits_for_init(pod, container, view) else messages.CONTAINER_CREATING
        waiting = {"reason": reason}
        if seen.waiting:
            waiting = {"reason": seen.waiting.reason} | (
                {"message": seen.waiting.message} if seen.waiting.message else {}
            )
        return {"waiting": waiting}
    if last.running:
        return {"running": {"startedAt": format_time(last.started or last.created)}}
    if over or not restarts(pod, container, last):
        return {"terminated": terminated(last)}
    if seen.waiting:
        return {"waiting": {"reason": seen.waiting.reason, "message": seen.waiting.message}}
    if restart_time(seen) > now:
        return {
            "waiting": {
                "reason": messages.CRASH_LOOP_BACK_OFF,
                "message": backoff_message(pod, container["name"], seen),
            }
        }
    return {"terminated": terminated(last)}


def _waits_for_init(pod: Object, container: Object, view: PodView) -> bool:
    return bool(pod["spec"].get("initContainers")) and container not in ephemeral_containers(pod)


def backoff_message(pod: Object, name: str, seen: ContainerView) -> str:
    metadata = pod["metadata"]
    pod_id = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    return messages.back_off(int(backoff(seen.attempts)), name, pod_id)


def terminated(attempt: Attempt) -> Object:
    state: Object = {"exitCode": attempt.exit_code}
    if attempt.signal and attempt.exit_code == 0:
        state["signal"] = attempt.signal
    state["reason"] = attempt.reason or ("Completed" if attempt.exit_code == 0 else "Error")
    if attempt.message:
        state["message"] = attempt.message
    # A container that never started has no start time; the kubelet shows the epoch.
    state["startedAt"] = format_time(attempt.started or 0)
    state["finishedAt"] = format_time(attempt.finished or attempt.created)
    if attempt.id:
        state["containerID"] = f"torchyard://{attempt.id}"
    return state


def _phase(pod: Object, view: PodView, before: Object, inits: list[Object], mains: list[Object]) -> str:
    """The kubelet's getPhase."""
    if before.get("phase") in ("Succeeded", "Failed"):
        return str(before["phase"])
    if view.ended and not any("running" in status["state"] for status in [*inits, *mains]):
        # Until its containers have stopped, the pod keeps its phase.
        return "Failed"
    # Nothing restarts in a terminating pod.
    stopped_for_good = _is_stopped(pod, [*inits, *mains])
    policy = "Never" if stopped_for_good else pod["spec"].get("restartPolicy") or "Always"
    waiting_for_init = failed_init = 0
    for container, status in zip(init_containers(pod), inits, strict=True):
        ended = status["state"].get("terminated")
        if is_sidecar(container):
            waiting_for_init += not status["started"] and not _any_started(mains)
        elif ended:
            failed_init += ended["exitCode"] != 0
        elif not _any_started(mains):
            waiting_for_init += 1
    if failed_init and policy == "Never":
        return "Failed"
    running = sum("running" in main["state"] for main in mains)
    stopped = [
        main["state"].get("terminated") or main["lastState"].get("terminated")
        for main in mains
        if "running" not in main["state"]
    ]
    if waiting_for_init or failed_init or None in stopped:
        return "Pending"
    if running or any("running" in init["state"] for init in inits):
        return "Running"
    codes = [state["exitCode"] for state in stopped if state]
    if policy == "Always":
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded" if stopped_for_good or is_over(pod, view) else "Running"
    return "Failed" if policy == "Never" else "Running"


def _ended_with_node(view: PodView) -> bool:
    return any(container.last and container.last.node_stopped for container in view.containers.values())


def _is_stopped(pod: Object, statuses: list[Object]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) and not any(
        "running" in status["state"] for status in statuses
    )


def _any_started(mains: list[Object]) -> bool:
    return any(
        "running" in container["state"] or "terminated" in container["state"] or container["lastState"]
        for container in mains
    )


def _conditions(
    pod: Object,
    view: PodView,
    phase: str,
    *,
    inits: list[Object],
    mains: list[Object],
    now: float,
) -> list[Object]:
    before: Object = pod.get("status") or {}
    sandbox = view.sandbox and phase in ("Pending", "Running")
    desired: dict[str, tuple[bool, str, str]] = {
        "PodReadyToStartContainers": (sandbox, "", ""),
        "Initialized": _initialized(pod, phase, inits),
    }
    ready = _containers_ready(
        phase, mains, [init for init, spec in zip(inits, init_containers(pod), strict=True) if is_sidecar(spec)]
    )
    desired["Ready"] = _gates(pod, before) or ready if ready[0] else ready
    desired["ContainersReady"] = ready
    desired["PodScheduled"] = (True, "", "")
    if phase == "Failed" and not view.ended and _ended_with_node(view):
        desired["DisruptionTarget"] = (True, messages.TERMINATION_BY_KUBELET, messages.NODE_SHUTDOWN[1])
    previous: Mapping[str, Object] = {entry["type"]: entry for entry in before.get("conditions") or ()}
    generation = pod["metadata"].get("generation")
    conditions = [entry for kind, entry in previous.items() if kind not in desired]
    for kind, (holds, reason, message) in desired.items():
        condition = _condition(kind, holds, previous.get(kind), generation=generation, now=now)
        condition |= ({"reason": reason} if reason else {}) | ({"message": message} if message else {})
        conditions.append(condition)
    return conditions


def _condition(kind: str, holds: bool, before: Object | None, *, generation: Any, now: float) -> Object:
    text = "True" if holds else "False"
    changed = format_time(now)
    if before and before.get("status") == text:
        changed = before.get("lastTransitionTime") or changed
    condition: Object = {"type": kind}
    if generation:
        condition["observedGeneration"] = generation
    condition |= {"status": text, "lastProbeTime": None, "lastTransitionTime": changed}
    return condition


def _initialized(pod: Object, phase: str, inits: list[Object]) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return True, messages.POD_COMPLETED, ""
    specs = init_containers(pod)
    pending = [
        init["name"]
        for init, spec in zip(inits, specs, strict=True)
        if not (init["started"] if is_sidecar(spec) else init["ready"])
    ]
    if pending and phase in ("Pending", "Failed"):
        return False, messages.NOT_INITIALIZED, messages.incomplete(pending)
    return True, "", ""


def _containers_ready(phase: str, mains: list[Object], sidecars: list[Object]) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, messages.POD_COMPLETED, ""
    if phase == "Failed":
        return False, messages.POD_FAILED, ""
    unready = [container["name"] for container in [*sidecars, *mains] if not container["ready"]]
    if unready:
        return False, messages.NOT_READY, messages.unready(unready)
    return True, "", ""


def _gates(pod: Object, before: Object) -> tuple[bool, str, str] | None:
    """Readiness gates: conditions that other controllers must set before the pod is ready."""
    statuses = {condition["type"]: condition.get("status") for condition in before.get("conditions") or ()}
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        if statuses.get(kind) != "True":
            message = messages.gate_missing(kind) if kind not in statuses else messages.gate_not_true(kind)
            return False, messages.GATES_NOT_READY, message
    return None
