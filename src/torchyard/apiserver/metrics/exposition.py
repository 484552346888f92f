"""The server's figures in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from torchyard.apiserver.metrics.requests import RequestMetrics


def expose(metrics: RequestMetrics) -> bytes:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Figures(metrics))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        labels = ("verb", "group", "version", "resource", "subresource", "code")
        requests = CounterMetricFamily("apiserver_request", "Requests answered.", labels=labels)
        for said, count in self._metrics.requests.items():
            requests.add_metric(said, count)
        yield requests
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Time to answer a request; watches and streams are not counted.",
            labels=("verb", "group", "resource"),
        )
        for said, one in self._metrics.durations.items():
            durations.add_metric(said, one.buckets(), one.total)
        yield durations
        store = self._metrics.store
        objects = GaugeMetricFamily("apiserver_storage_objects", "Objects stored.", labels=("resource",))
        for collection in store.collections():
            objects.add_metric((collection.prefix.strip("/"),), len(collection))
        yield objects
        watches = GaugeMetricFamily("apiserver_longrunning_requests", "Watches under way.", labels=("verb",))
        watches.add_metric(("WATCH",), store.watcher_count())
        yield watches
