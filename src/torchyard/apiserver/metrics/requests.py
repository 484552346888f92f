"""Counts and durations of requests, in plain numbers; `exposition` formats them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from torchyard.apiserver.store.store import Store

# verb, group, version, resource, subresource, code
RequestLabels = tuple[str, str, str, str, str, str]
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class DurationHistogram:
    """The number of requests, or of anything else that takes time, by duration."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Prometheus' cumulative buckets: the number of observations of at most so many seconds."""
        bounds = [str(float(bound)) for bound in self.bounds]
        return list(zip([*bounds, "+Inf"], map(float, accumulate(self.counts)), strict=True))


class RequestMetrics:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.requests: dict[RequestLabels, int] = {}
        self.durations: dict[tuple[str, ...], DurationHistogram] = {}  # by verb, group, resource

    def count(self, labels: RequestLabels, seconds: float | None) -> None:
        """Count a request, and its duration unless it is a stream."""
        self.requests[labels] = self.requests.get(labels, 0) + 1
        if seconds is not None:
            key = (labels[0], labels[1], labels[3])
            durations = self.durations.get(key)
            if durations is None:
                durations = self.durations[key] = DurationHistogram()
            durations.observe(seconds)
