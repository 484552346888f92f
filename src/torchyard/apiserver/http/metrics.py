"""The connections of the HTTP server and its queue, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchyard.apiserver.http.server import HttpServer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class HttpMetrics:
    def __init__(self, server: HttpServer) -> None:
        self._server = server

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        table, queue = self._server.table, self._server.queue
        connections = GaugeMetricFamily(
            "torchyard_connections", "Open connections of the API server.", labels=("authenticated",)
        )
        connections.add_metric(("false",), table.unauthenticated_count)
        connections.add_metric(("true",), len(table.peers) - table.unauthenticated_count)
        yield connections
        yield GaugeMetricFamily(
            "torchyard_connections_limit", "Connections that the API server accepts.", self._server.limits.connections
        )
        yield CounterMetricFamily(
            "torchyard_connections_evicted", "Connections closed to make room for others.", table.evicted
        )
        yield CounterMetricFamily(
            "torchyard_connections_refused", "Connections refused because none could be closed.", table.refused
        )
        yield GaugeMetricFamily(
            "apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for their turn.", queue.waiting
        )
        rejected = CounterMetricFamily(
            "apiserver_flowcontrol_rejected_requests", "Requests rejected with status 429.", labels=("reason",)
        )
        for reason, number in queue.rejected.items():
            rejected.add_metric((reason,), number)
        yield rejected
