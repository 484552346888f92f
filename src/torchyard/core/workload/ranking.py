"""Which pods are deleted first when there are too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active, is_ready, phase
from torchyard.api.times import parse_rfc3339
from torchyard.api.workload import labels
from torchyard.core.workload.pods import ready_since

_STAGES = {"Pending": 0, "Unknown": 1, "Running": 2}


def surplus(pods: list[Object], related: Iterable[Object], count: int, now: datetime) -> list[Object]:
    """The `count` pods that go first. `related`: all pods of the same Deployment, of which a node should keep few."""
    if count >= len(pods):
        return pods
    crowd = Counter(_node(pod) for pod in related if is_active(pod))
    return sorted(pods, key=lambda pod: _rank(pod, crowd[_node(pod)], now))[:count]


def _rank(pod: Object, neighbours: int, now: datetime) -> tuple[Any, ...]:
    """Upstream's order: without a node, not running, not ready, cheap, crowded, ready for a shorter time, restarted."""
    created = pod["metadata"].get("creationTimestamp")
    return (
        bool(_node(pod)),
        _STAGES.get(phase(pod), 0),
        is_ready(pod),
        deletion_cost(pod),
        -neighbours,
        *_age(ready_since(pod) if is_ready(pod) else None, now),
        -_restarts(pod),
        *_age(parse_rfc3339(created) if created else None, now),
        pod["metadata"].get("uid", ""),
    )


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _age(since: datetime | None, now: datetime) -> tuple[int]:
    """Ages are compared by their logarithm, so that pods of about the same age go in no particular order."""
    if since is None:
        return (-1,)
    seconds = max((now - since).total_seconds(), 0.0)
    return (int(math.log2(seconds * 1e9)) if seconds else 0,)


def deletion_cost(pod: Object) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(labels.POD_DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount") or 0) for status in statuses), default=0)
