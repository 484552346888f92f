"""The queues as users see them: each workload's position and state, and an estimate of when it starts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapreplace

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import advice_messages, messages
from torchyard.core.queue.pod_defaults import NO_DEFAULTS, NamespaceDefaults
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


def workload_positions(
    workloads: Iterable[Object], cluster_queue_of: dict[Key, str], defaults: NamespaceDefaults | None = None
) -> list[WorkloadPosition]:
    """All workloads, in the order in which their ClusterQueue schedules them.

    `cluster_queue_of`: by LocalQueue. `defaults`: what is added to pods when they are created.
    """
    return positions_of_infos(parse_workloads(workloads, defaults), cluster_queue_of)


def parse_workloads(workloads: Iterable[Object], defaults: NamespaceDefaults | None = None) -> Iterator[WorkloadInfo]:
    for obj in workloads:
        namespace = obj["metadata"].get("namespace", "")
        yield WorkloadInfo(obj, defaults=NO_DEFAULTS if defaults is None else defaults.of(namespace))


def positions_of_infos(infos: Iterable[WorkloadInfo], cluster_queue_of: dict[Key, str]) -> list[WorkloadPosition]:
    """As `workload_positions`, for workloads that are parsed already."""
    infos = sorted(infos, key=lambda info: info.order)
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
    message = reserved["message"] if reserved is not None else advice_messages.NOT_EVALUATED
    return (PENDING if info.is_active else HELD), message


class StartEstimator:
    """When pending workloads start, if those before them run as long as the finished ones did.

    Assumes that as many run at once as do now, and that each one that finishes lets the next one start.
    """

    def __init__(self, positions: Iterable[WorkloadPosition]) -> None:
        """`positions`: of all workloads."""
        self._workloads: dict[str, list[WorkloadPosition]] = {}  # by ClusterQueue
        for workload in positions:
            self._workloads.setdefault(workload.cluster_queue, []).append(workload)
        self._run_times: dict[str, list[float]] = {}  # by ClusterQueue

    def estimate(self, workload: WorkloadPosition, now: float) -> StartEstimate | None:
        """None if it is not pending, or too few workloads of its ClusterQueue have finished."""
        run_times = self._finished_run_times(workload.cluster_queue)
        if workload.position is None or len(run_times) < _MIN_FINISHED:
            return None
        mean, deviation = statistics.mean(run_times), statistics.pstdev(run_times)
        same_queue = self._workloads.get(workload.cluster_queue, ())
        running = [other.info for other in same_queue if other.state in (ADMITTED, EVICTED)]
        ends = sorted(max(0.0, mean - (now - info.reserved_at)) for info in running) or [0.0]
        for _ in range(workload.position):
            heapreplace(ends, ends[0] + mean)
        generations = workload.position // max(1, len(ends)) + 1
        return StartEstimate(ends[0], deviation * math.sqrt(generations))

    def _finished_run_times(self, cluster_queue: str) -> list[float]:
        if cluster_queue not in self._run_times:
            times = (_run_time(other.info) for other in self._workloads.get(cluster_queue, ()))
            self._run_times[cluster_queue] = [run_time for run_time in times if run_time is not None]
        return self._run_times[cluster_queue]


def estimate_start(
    workload: WorkloadPosition, positions: Iterable[WorkloadPosition], now: float
) -> StartEstimate | None:
    """When one pending workload starts; None if too few have finished."""
    return StartEstimator(positions).estimate(workload, now)


def _run_time(info: WorkloadInfo) -> float | None:
    """How long a finished workload was admitted."""
    conditions = (info.obj.get("status") or {}).get("conditions") or ()
    finished, admitted = find(conditions, messages.FINISHED), find(conditions, messages.ADMITTED)
    if finished is None or admitted is None or finished["status"] != "True":
        return None
    return max(0.0, to_timestamp(finished["lastTransitionTime"]) - to_timestamp(admitted["lastTransitionTime"]))
