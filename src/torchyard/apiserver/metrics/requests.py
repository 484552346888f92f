"""The server's own figures, with kube-apiserver's names.

Requests are counted in plain numbers. When somebody asks for them, `exposition` puts them into Prometheus' format.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from torchyard.apiserver.store.store import Store

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Durations:
    """How many requests took how long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus has them: the requests that took at most so many seconds."""
        bounds = [str(float(one)) for one in SECONDS]
        return list(zip([*bounds, "+Inf"], map(float, accumulate(self.counts)), strict=True))


class RequestMetrics:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.requests: dict[tuple[str, ...], int] = {}  # by verb, group, version, resource, subresource, code
        self.durations: dict[tuple[str, ...], Durations] = {}  # by verb, group, resource

    def count(self, labels: tuple[str, str, str, str, str, str], seconds: float | None) -> None:
        """Note an answered request: verb, group, version, resource, subresource, code."""
        self.requests[labels] = self.requests.get(labels, 0) + 1
        if seconds is not None:
            key = (labels[0], labels[1], labels[3])
            durations = self.durations.get(key)
            if durations is None:
                durations = self.durations[key] = Durations()
            durations.counts[bisect_left(SECONDS, seconds)] += 1
            durations.total += seconds
