"""How long the event loop was blocked, and by which callbacks, in plain numbers and in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchyard.apiserver.metrics.requests import DurationHistogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

BLOCKED_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class EventLoopMetrics:
    def __init__(self) -> None:
        self.blocked: dict[str, DurationHistogram] = {}  # by callback
        self.lag = DurationHistogram(LAG_BUCKETS)
        self.stopped_seconds = 0.0

    def count_blocked(self, callback: str, seconds: float) -> None:
        histogram = self.blocked.get(callback)
        if histogram is None:
            histogram = self.blocked[callback] = DurationHistogram(BLOCKED_BUCKETS)
        histogram.observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        blocked = HistogramMetricFamily(
            "torchyard_event_loop_blocked_seconds",
            "Callbacks that blocked the event loop for longer than the threshold, by duration.",
            labels=("callback",),
        )
        for callback, histogram in list(self.blocked.items()):
            blocked.add_metric((callback,), histogram.buckets(), histogram.total)
        yield blocked
        yield HistogramMetricFamily(
            "torchyard_event_loop_lag_seconds",
            "How long a new callback waits for its turn while the event loop is busy.",
            buckets=self.lag.buckets(),
            sum_value=self.lag.total,
        )
        yield CounterMetricFamily(
            "torchyard_process_stopped_seconds",
            "Time during which the process did not run, such as between SIGSTOP and SIGCONT.",
            value=self.stopped_seconds,
        )
