"""The settings of the queues: those parts of Kueue's Configuration that apply to scheduling and to workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FINAL_SHARE, INITIAL_SHARE = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


@dataclass(frozen=True)
class FairSharing:
    """Cohorts share unused quota by weight. `strategies`: when a workload of another ClusterQueue may be preempted."""

    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)


@dataclass(frozen=True)
class AdmissionFairSharing:
    """LocalQueues of a ClusterQueue share by past usage. Times are in seconds."""

    half_life: float = 0.0  # 0: past usage does not count
    sampling_interval: float = 5 * 60
    resource_weights: Mapping[str, float] = field(default_factory=dict)  # 1 for those that are not listed


@dataclass(frozen=True)
class QueueSettings:
    """waitForPodsReady and its requeuing strategy, with Kueue's defaults, and fair sharing. Times are in seconds."""

    pods_ready: bool = True
    timeout: float = 30 * 60
    recovery_timeout: float = 30 * 60
    backoff_base: float = 60
    backoff_max: float = 3600
    backoff_limit: int | None = None
    backoff_jitter: float = 0.0001  # at most this fraction of a backoff is added to it
    block_admission: bool = False
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
