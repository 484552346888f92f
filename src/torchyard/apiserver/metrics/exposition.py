"""The server's metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from torchyard.apiserver.metrics.requests import RequestMetrics


def expose(metrics: RequestMetrics) -> bytes:
    """Safe in another thread than the one that counts: what it iterates over is copied first, in one step."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_RequestCollector(metrics))
    return generate_latest(registry)


class _RequestCollector(Collector):
    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        labels = ("verb", "group", "version", "resource", "subresource", "code")
        requests = CounterMetricFamily("apiserver_request", "Requests answered.", labels=labels)
        for values, count in list(self._metrics.requests.items()):
            requests.add_metric(values, count)
        yield requests
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Time to answer a request; watches and streams are not counted.",
            labels=("verb", "group", "resource"),
        )
        for key, duration in list(self._metrics.durations.items()):
            durations.add_metric(key, duration.buckets(), duration.total)
        yield durations
        store = self._metrics.store
        objects = GaugeMetricFamily("apiserver_storage_objects", "Objects stored.", labels=("resource",))
        for collection in store.collections():
            objects.add_metric((collection.prefix.strip("/"),), len(collection))
        yield objects
        watches = GaugeMetricFamily("apiserver_longrunning_requests", "Watches under way.", labels=("verb",))
        watches.add_metric(("WATCH",), store.watcher_count())
        yield watches
