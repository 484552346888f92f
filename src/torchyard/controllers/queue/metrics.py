"""The metrics of the queues, under Kueue's names."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from torchyard.core.queue.resources import FlavorResourceQuantities

_WAIT_BUCKETS = (1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240)


class QueueMetrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        queue = ("cluster_queue",)
        self._child = cache(lambda metric, *labels: metric.labels(*labels))  # the look-up costs more than the count
        self._attempts = Histogram(
            "kueue_admission_attempt_duration_seconds",
            "Duration of a scheduling cycle.",
            ("result",),
            registry=registry,
        )
        self._attempt_count = Counter(
            "kueue_admission_attempts", "Scheduling cycles with a decision.", ("result",), registry=registry
        )
        self._creations = Histogram(
            "kueue_workload_creation_latency_seconds",
            "Time from the creation of a job to that of its workload.",
            ("job_kind",),
            registry=registry,
        )
        self._admission_waits = Histogram(
            "kueue_admission_wait_time_seconds",
            "Time from queued to admitted.",
            queue,
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._reservation_waits = Histogram(
            "kueue_quota_reserved_wait_time_seconds",
            "Time from queued to quota reserved.",
            queue,
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._pending = Gauge(
            "kueue_pending_workloads", "Pending workloads.", ("cluster_queue", "status"), registry=registry
        )
        self._reserved = Counter(
            "kueue_quota_reserved_workloads", "Workloads that got quota.", queue, registry=registry
        )
        self._admitted = Counter("kueue_admitted_workloads", "Admitted workloads.", queue, registry=registry)
        self._evicted = Counter(
            "kueue_evicted_workloads", "Evicted workloads.", ("cluster_queue", "reason"), registry=registry
        )
        self._active = Gauge(
            "kueue_admitted_active_workloads", "Admitted workloads that are not finished.", queue, registry=registry
        )
        self._usage = Gauge(
            "kueue_cluster_queue_resource_usage",
            "Quota in use.",
            ("cohort", "cluster_queue", "flavor", "resource"),
            registry=registry,
        )

        self._shares = Gauge(
            "kueue_cluster_queue_weighted_share",
            "Dominant resource share of a ClusterQueue, divided by its weight.",
            ("cluster_queue", "cohort"),
            registry=registry,
        )
        self._cohort_shares = Gauge(
            "kueue_cohort_weighted_share",
            "Dominant resource share of a cohort, divided by its weight.",
            ("cohort",),
            registry=registry,
        )
        self._local_queue_usage = Gauge(
            "kueue_local_queue_admission_fair_sharing_usage",
            "What a LocalQueue consumed, as admission fair sharing counts it.",
            ("name", "namespace"),
            registry=registry,
        )

    def admission_attempt(self, seconds: float, success: bool) -> None:
        result = "success" if success else "inadmissible"
        self._child(self._attempts, result).observe(seconds)
        self._child(self._attempt_count, result).inc()

    def workload_created(self, job_kind: str, seconds: float) -> None:
        self._creations.labels(job_kind).observe(seconds)

    def quota_reserved(self, cluster_queue: str, seconds: float) -> None:
        self._child(self._reserved, cluster_queue).inc()
        self._child(self._reservation_waits, cluster_queue).observe(seconds)

    def admitted(self, cluster_queue: str, seconds: float) -> None:
        self._child(self._admitted, cluster_queue).inc()
        self._child(self._admission_waits, cluster_queue).observe(seconds)

    def evicted(self, cluster_queue: str, reason: str) -> None:
        self._evicted.labels(cluster_queue, reason).inc()

    def set_workloads(self, cluster_queue: str, *, active: int, inadmissible: int, admitted: int) -> None:
        self._pending.labels(cluster_queue, "active").set(active)
        self._pending.labels(cluster_queue, "inadmissible").set(inadmissible)
        self._active.labels(cluster_queue).set(admitted)

    def set_usage(self, cluster_queue: str, cohort: str, usage: FlavorResourceQuantities) -> None:
        for (flavor, resource), amount in usage.items():
            self._usage.labels(cohort, cluster_queue, flavor, resource).set(amount / 1000)

    def set_share(self, cluster_queue: str, cohort: str, share: float) -> None:
        self._shares.labels(cluster_queue, cohort).set(share)

    def set_cohort_share(self, cohort: str, share: float) -> None:
        self._cohort_shares.labels(cohort).set(share)

    def set_local_queue_usage(self, namespace: str, name: str, usage: float) -> None:
        self._local_queue_usage.labels(name, namespace).set(usage)

    def text(self) -> bytes:
        return generate_latest(self._registry)
