"""The server's own figures, with kube-apiserver's names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from torchyard.apiserver.store.store import Store

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    def __init__(self, store: Store) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._store = store
        labels = ("verb", "group", "version", "resource", "subresource", "code")
        self._requests = Counter("apiserver_request", "Requests answered.", labels, registry=self._registry)
        self._duration = Histogram(
            "apiserver_request_duration_seconds",
            "Time to answer a request; watches and streams are not counted.",
            ("verb", "group", "resource"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._children: dict[tuple[str, ...], Counter] = {}
        self._timers: dict[tuple[str, ...], Histogram] = {}
        objects = Gauge("apiserver_storage_objects", "Objects stored.", ("resource",), registry=self._registry)
        self._objects = objects
        watches = Gauge("apiserver_longrunning_requests", "Watches under way.", ("verb",), registry=self._registry)
        watches.labels("WATCH").set_function(store.watchers)

    def count(self, labels: tuple[str, str, str, str, str, str], seconds: float | None) -> None:
        """Note an answered request: verb, group, version, resource, subresource, code."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._requests.labels(*labels)
        child.inc()
        if seconds is not None:
            key = (labels[0], labels[1], labels[3])
            timer = self._timers.get(key)
            if timer is None:
                timer = self._timers[key] = self._duration.labels(*key)
            timer.observe(seconds)

    def text(self) -> bytes:
        for collection in self._store.collections():
            self._objects.labels(collection.prefix.strip("/")).set(len(collection))
        return generate_latest(self._registry)
