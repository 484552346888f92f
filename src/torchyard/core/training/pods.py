"""Phases, exit codes and restarts of the pods of a training job."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339


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


def runs_since_before(pod: Object, container: str, time: datetime) -> bool:
    """Whether a container runs, and was started before a time or within its second. Started again, it counts anew."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        running = (status.get("state") or {}).get("running")
        if status.get("name") == container and running is not None:
            started = running.get("startedAt")
            return started is None or parse_rfc3339(started) <= time
    return False
