"""Exit codes of the pods of a training job, and how long their containers run."""

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


def runs_since_before(pod: Object, container: str, time: datetime) -> bool:
    """Whether a container runs, and was started before a time or within its second. Started again, it counts anew."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        running = (status.get("state") or {}).get("running")
        if status.get("name") == container and running is not None:
            started = running.get("startedAt")
            return started is None or parse_rfc3339(started) <= time
    return False
