"""The queues as users see them: each workload's position and state, and an estimate of when it starts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapreplace

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.workload_info import Key, WorkloadInfo, to_timestamp

PENDING, HELD, RESERVED, ADMITTED, EVICTED, FINISHED = "Pending", "Held", "Reserved", "Admitted", "Evicted", "Finished"
_MIN_FINISHED = 3  # finished workloads that an estimate needs


@dataclass(frozen=True)
class WorkloadPosition:
    info: WorkloadInfo
    cluster_queue: str
    position: int | None  # from 0; None: it is not pending
    state: str
    message: str


@dataclass(frozen=True)
class StartEstimate:
    seconds: float  # from now
    deviation: float  # one standard deviation


def workload_positions(workloads: Iterable[Object], cluster_queue_of: dict[Key, str]) -> list[WorkloadPosition]:
    """All workloads, in the order in which their ClusterQueue schedules them. `cluster_queue_of`: by LocalQueue."""
    infos = sorted((WorkloadInfo(obj) for obj in workloads), key=lambda info: info.order)
    counts: dict[str, int] = {}
    positions: list[WorkloadPosition] = []
    for info in infos:
        cluster_queue = info.reserved_in or cluster_queue_of.get(info.local_queue, "")
        state, message = _state_and_message(info)
        position = None
        if state == PENDING:
            position = counts.get(cluster_queue, 0)
            counts[cluster_queue] = position + 1
        positions.append(WorkloadPosition(info, cluster_queue, position, state, message))
    return positions


def _state_and_message(info: WorkloadInfo) -> tuple[str, str]:
    conditions = (info.obj.get("status") or {}).get("conditions") or ()
    finished = find(conditions, messages.FINISHED)
    if finished is not None and finished["status"] == "True":
        return FINISHED, finished["message"]
    if info.reserved_in:
        if info.is_evicted:
            return EVICTED, (find(conditions, messages.EVICTED) or {}).get("message", "")
        if info.is_admitted:
            return ADMITTED, messages.WORKLOAD_IS_ADMITTED
        return RESERVED, messages.CHECKS_NOT_READY
    reserved = find(conditions, messages.QUOTA_RESERVED)
    message = reserved["message"] if reserved is not None else messages.NOT_EVALUATED
    return (PENDING if info.is_active else HELD), message


def estimate_start(
    workload: WorkloadPosition, positions: Iterable[WorkloadPosition], now: float
) -> StartEstimate | None:
    """When a pending workload starts, if those before it run as long as the finished ones did; None if too few have.

    Assumes that as many run at once as do now, and that each one that finishes lets the next one start.
    """
    same_queue = [other for other in positions if other.cluster_queue == workload.cluster_queue]
    run_times = [run_time for other in same_queue if (run_time := _run_time(other.info)) is not None]
    if workload.position is None or len(run_times) < _MIN_FINISHED:
        return None
    mean, deviation = statistics.mean(run_times), statistics.pstdev(run_times)
    running = [other.info for other in same_queue if other.state in (ADMITTED, EVICTED)]
    ends = sorted(max(0.0, mean - (now - info.reserved_at)) for info in running) or [0.0]
    for _ in range(workload.position):
        heapreplace(ends, ends[0] + mean)
    generations = workload.position // max(1, len(ends)) + 1
    return StartEstimate(ends[0], deviation * math.sqrt(generations))


def _run_time(info: WorkloadInfo) -> float | None:
    """How long a finished workload was admitted."""
    conditions = (info.obj.get("status") or {}).get("conditions") or ()
    finished, admitted = find(conditions, messages.FINISHED), find(conditions, messages.ADMITTED)
    if finished is None or admitted is None or finished["status"] != "True":
        return None
    return max(0.0, to_timestamp(finished["lastTransitionTime"]) - to_timestamp(admitted["lastTransitionTime"]))
