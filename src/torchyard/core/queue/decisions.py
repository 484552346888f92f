"""What a scheduling cycle decides. The owner of the `QueueState` writes it."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import PendingHeap
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.minimal_targets import PreemptionTarget
from torchyard.core.queue.workload_info import Key, WorkloadInfo


@dataclass(frozen=True)
class Admit:
    info: WorkloadInfo
    cluster_queue: str
    assignment: Assignment
    replaced: WorkloadInfo | None = None  # the slice whose quota it takes over


@dataclass(frozen=True)
class Preempt:
    """Evict the targets; the preemptor waits until they have released their quota."""

    info: WorkloadInfo
    cluster_queue: str
    targets: list[PreemptionTarget]
    target_paths: dict[Key, str]  # in the hierarchy of cohorts
    path: str


@dataclass(frozen=True)
class StayPending:
    """The workload, and those behind it in its heap."""

    info: WorkloadInfo
    heap: PendingHeap
    why: ReasonMessage


@dataclass(frozen=True)
class SchedulingFailure:
    """A ClusterQueue whose head could not be scheduled because of an unexpected exception. It waits for a change."""

    cluster_queue: str
    error: Exception


SchedulingDecision = Admit | Preempt | StayPending | SchedulingFailure
