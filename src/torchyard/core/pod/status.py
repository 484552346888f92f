"""A pod's status as the kubelet writes it: phase, conditions, container statuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from torchyard.api.objects import Object
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

# The reason and message that the kubelet's graceful node shutdown sets on a pod and on its DisruptionTarget.
NODE_SHUTDOWN = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
BY_KUBELET = "TerminationByKubelet"


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
    if phase == "Failed" and (termination := view.ended or (NODE_SHUTDOWN if _ended_with_node(view) else None)):
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
    if inits:
        status["initContainerStatuses"] = inits
    status["containerStatuses"] = sorted(mains, key=lambda one: str(one["name"]))
    ephemeral = [container_status(pod, container, view, before, now=now) for container in ephemeral_containers(pod)]
    if ephemeral:
        status["ephemeralContainerStatuses"] = ephemeral
    status["conditions"] = _conditions(pod, view, phase, inits=inits, mains=mains, now=now)
    return status


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
        reason = "PodInitializing" if _waits_for_init(pod, container, view) else "ContainerCreating"
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
        return {"waiting": {"reason": "CrashLoopBackOff", "message": backoff_message(pod, container["name"], seen)}}
    return {"terminated": terminated(last)}


def _waits_for_init(pod: Object, container: Object, view: PodView) -> bool:
    return bool(pod["spec"].get("initContainers")) and container not in ephemeral_containers(pod)


def backoff_message(pod: Object, name: str, seen: ContainerView) -> str:
    metadata = pod["metadata"]
    seconds = int(backoff(seen.attempts))
    length = f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
    whose = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    return f"back-off {length} restarting failed container={name} pod={whose}"


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
    if view.ended and not any("running" in one["state"] for one in [*inits, *mains]):
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
    running = sum("running" in one["state"] for one in mains)
    stopped = [
        one["state"].get("terminated") or one["lastState"].get("terminated")
        for one in mains
        if "running" not in one["state"]
    ]
    if waiting_for_init or failed_init or any(one is None for one in stopped):
        return "Pending"
    if running or any("running" in one["state"] for one in inits):
        return "Running"
    codes = [one["exitCode"] for one in stopped if one]
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
        phase, mains, [one for one, spec in zip(inits, init_containers(pod), strict=True) if is_sidecar(spec)]
    )
    desired["Ready"] = _gates(pod, before) or ready if ready[0] else ready
    desired["ContainersReady"] = ready
    desired["PodScheduled"] = (True, "", "")
    if phase == "Failed" and not view.ended and _ended_with_node(view):
        desired["DisruptionTarget"] = (True, BY_KUBELET, NODE_SHUTDOWN[1])
    previous: Mapping[str, Object] = {one["type"]: one for one in before.get("conditions") or ()}
    generation = pod["metadata"].get("generation")
    conditions = [one for kind, one in previous.items() if kind not in desired]
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
        return True, "PodCompleted", ""
    specs = init_containers(pod)
    pending = [
        init["name"]
        for init, spec in zip(inits, specs, strict=True)
        if not (init["started"] if is_sidecar(spec) else init["ready"])
    ]
    if pending and phase in ("Pending", "Failed"):
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(pending)}]"
    return True, "", ""


def _containers_ready(phase: str, mains: list[Object], sidecars: list[Object]) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    unready = [container["name"] for container in [*sidecars, *mains] if not container["ready"]]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _gates(pod: Object, before: Object) -> tuple[bool, str, str] | None:
    """Readiness gates: conditions that other controllers must set before the pod is ready."""
    statuses = {condition["type"]: condition.get("status") for condition in before.get("conditions") or ()}
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        if statuses.get(kind) != "True":
            missing = "corresponding condition of pod readiness gate"
            verb = "does not exist" if kind not in statuses else 'is not "True"'
            return False, "ReadinessGatesNotReady", f'{missing} "{kind}" {verb}.'
    return None
