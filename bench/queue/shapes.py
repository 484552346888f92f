"""The load of Kueue's scheduler test: cohorts of queues, each with many small, some medium and few large workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchyard.api.objects import Object

GROUP = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Class:
    name: str
    share: int  # of 500
    interval: float  # seconds between arrivals in one queue
    runtime: float
    priority: int
    cpu: int


CLASSES = (
    Class("small", 350, 0.1, 0.2, 50, 1),
    Class("medium", 100, 0.5, 0.5, 100, 5),
    Class("large", 50, 1.2, 1.0, 200, 20),
)


@dataclass(frozen=True)
class Load:
    cohorts: int
    queues: int  # per cohort
    per_queue: int = 500

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(f"cohort-{c}", f"cohort-{c}-queue-{q}") for c in range(self.cohorts) for q in range(self.queues)]

    @property
    def total(self) -> int:
        return len(list(self.workloads()))

    def workloads(self) -> Iterator[tuple[float, Class, str, int]]:
        """(arrival, class, queue, number)"""
        for one in CLASSES:
            for number in range(one.share * self.per_queue // 500):
                for _, queue in self.names:
                    yield number * one.interval, one, queue, number


def flavor() -> Object:
    return {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "rf"}}


def cluster_queue(cohort: str, name: str) -> Object:
    quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}],
    }
    return {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(name: str, **spec: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": name, **spec}}


def workload(one: Class, queue: str, number: int) -> Object:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(one.cpu)}}}
    return {
        "apiVersion": GROUP,
        "kind": "Workload",
        "metadata": {"name": f"{queue}-{one.name}-{number}", "namespace": "default", "labels": {"class": one.name}},
        "spec": {
            "queueName": queue,
            "priority": one.priority,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
                }
            ],
        },
    }
