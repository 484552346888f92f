"""Phases, exit codes and restarts of the pods of a training job."""

from __future__ import annotations

from torchyard.api.objects import Object


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def exit_code(pod: Object, container: str) -> int | None:
    """The exit code of a container, if it has ended."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated")
        if status.get("name") == container and ended:
            return int(ended.get("exitCode", 0))
    return None


def container_statuses(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def container_restarts(pod: Object) -> int:
    return sum(int(container.get("restartCount") or 0) for container in container_statuses(pod))
