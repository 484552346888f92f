"""The figures of queues under Kueue's names."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from torchyard.core.queue.resources import Amounts

_WAITS = (1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240)


class Metrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        queue = ("cluster_queue",)
        self._of = cache(lambda figure, *labels: figure.labels(*labels))  # to find one costs more than to count
        self._attempts = Histogram(
            "kueue_admission_attempt_duration_seconds", "Time of a round.", ("result",), registry=registry
        )
        self._attempt_count = Counter(
            "kueue_admission_attempts", "Rounds that came to a decision.", ("result",), registry=registry
        )
        self._creations = Histogram(
            "kueue_workload_creation_latency_seconds",
            "From a job to its workload.",
            ("job_kind",),
            registry=registry,
        )
        self._waits = Histogram(
            "kueue_admission_wait_time_seconds", "From queued to admitted.", queue, buckets=_WAITS, registry=registry
        )
        self._reserved_waits = Histogram(
            "kueue_quota_reserved_wait_time_seconds",
            "From queued to reserved.",
            queue,
            buckets=_WAITS,
            registry=registry,
        )
        self._pending = Gauge(
            "kueue_pending_workloads", "Workloads that wait.", ("cluster_queue", "status"), registry=registry
        )
        self._reserved = Counter(
            "kueue_quota_reserved_workloads", "Workloads that got quota.", queue, registry=registry
        )
        self._admitted = Counter("kueue_admitted_workloads", "Workloads admitted.", queue, registry=registry)
        self._evicted = Counter(
            "kueue_evicted_workloads", "Workloads evicted.", ("cluster_queue", "reason"), registry=registry
        )
        self._active = Gauge("kueue_admitted_active_workloads", "Admitted and not finished.", queue, registry=registry)
        self._usage = Gauge(
            "kueue_cluster_queue_resource_usage",
            "Quota in use.",
            ("cohort", "cluster_queue", "flavor", "resource"),
            registry=registry,
        )

    def attempt(self, seconds: float, success: bool) -> None:
        result = "success" if success else "inadmissible"
        self._of(self._attempts, result).observe(seconds)
        self._of(self._attempt_count, result).inc()

    def composed(self, kind: str, seconds: float) -> None:
        self._creations.labels(kind).observe(seconds)

    def reserved(self, queue: str, seconds: float) -> None:
        self._of(self._reserved, queue).inc()
        self._of(self._reserved_waits, queue).observe(seconds)

    def admitted(self, queue: str, seconds: float) -> None:
        self._of(self._admitted, queue).inc()
        self._of(self._waits, queue).observe(seconds)

    def evicted(self, queue: str, reason: str) -> None:
        self._evicted.labels(queue, reason).inc()

    def figures(self, queue: str, *, active: int, inadmissible: int, admitted: int) -> None:
        self._pending.labels(queue, "active").set(active)
        self._pending.labels(queue, "inadmissible").set(inadmissible)
        self._active.labels(queue).set(admitted)

    def usage(self, queue: str, cohort: str, amounts: Amounts) -> None:
        for (flavor, resource), amount in amounts.items():
            self._usage.labels(cohort, queue, flavor, resource).set(amount / 1000)

    def text(self) -> bytes:
        return generate_latest(self._registry)
