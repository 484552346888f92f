"""What controllers of every kind ask about a pod: phase, containers, whether it has ended, is active or ready."""

from __future__ import annotations

from torchyard.api.conditions import has_true_condition
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object

ENDED = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """The phase; Pending before anything has reported one."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def has_ended(pod: Object) -> bool:
    return phase(pod) in ENDED


def is_active(pod: Object) -> bool:
    """Whether the pod runs or will run: it has not ended and is not being deleted."""
    return not has_ended(pod) and not is_terminating(pod)


def is_ready(pod: Object) -> bool:
    return has_true_condition(pod, "Ready")


def container_statuses(pod: Object) -> list[Object]:
    """The statuses of the init containers, then those of the containers."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def container_restarts(pod: Object) -> int:
    return sum(int(container.get("restartCount") or 0) for container in container_statuses(pod))
