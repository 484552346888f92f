"""Reasons and messages of a pod's status, as the kubelet writes them."""

from __future__ import annotations

from collections.abc import Iterable

NODE_SHUTDOWN = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
TERMINATION_BY_KUBELET = "TerminationByKubelet"
POD_COMPLETED, POD_FAILED = "PodCompleted", "PodFailed"
NOT_INITIALIZED, NOT_READY = "ContainersNotInitialized", "ContainersNotReady"
GATES_NOT_READY = "ReadinessGatesNotReady"
CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
POD_INITIALIZING, CONTAINER_CREATING = "PodInitializing", "ContainerCreating"


def back_off(seconds: int, container: str, pod: str) -> str:
    length = f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
    return f"back-off {length} restarting failed container={container} pod={pod}"


def incomplete(containers: Iterable[str]) -> str:
    return f"containers with incomplete status: [{' '.join(containers)}]"


def unready(containers: Iterable[str]) -> str:
    return f"containers with unready status: [{' '.join(containers)}]"


def gate_missing(condition: str) -> str:
    return f'corresponding condition of pod readiness gate "{condition}" does not exist.'


def gate_not_true(condition: str) -> str:
    return f'corresponding condition of pod readiness gate "{condition}" is not "True".'
