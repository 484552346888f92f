"""The load of Kueue's scheduler test: cohorts of queues with many small, some medium and few large workloads each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torchyard.api.objects import Object

API_VERSION = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class WorkloadClass:
    name: str
    share: int  # of 500
    interval: float  # seconds between arrivals in one queue
    runtime: float
    priority: int
    cpu: int


CLASSES = (
    WorkloadClass("small", 350, 0.1, 0.2, 50, 1),
    WorkloadClass("medium", 100, 0.5, 0.5, 100, 5),
    WorkloadClass("large", 50, 1.2, 1.0, 200, 20),
)


class Arrival(NamedTuple):
    at: float  # seconds after the start
    workload_class: WorkloadClass
    queue: str
    number: int


@dataclass(frozen=True)
class Load:
    cohorts: int
    queues: int  # per cohort
    per_queue: int = 500

    @property
    def names(self) -> list[tuple[str, str]]:
        """(cohort, queue)"""
        return [
            (f"cohort-{cohort}", f"cohort-{cohort}-queue-{queue}")
            for cohort in range(self.cohorts)
            for queue in range(self.queues)
        ]

    @property
    def total(self) -> int:
        return len(list(self.workloads()))

    def workloads(self) -> Iterator[Arrival]:
        for workload_class in CLASSES:
            for number in range(workload_class.share * self.per_queue // 500):
                for _, queue in self.names:
                    yield Arrival(number * workload_class.interval, workload_class, queue, number)


def flavor() -> Object:
    return {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "rf"}}


def cluster_queue(cohort: str, name: str) -> Object:
    quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}],
    }
    return {"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(name: str, **spec: str) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": metadata,
        "spec": {"clusterQueue": name, **spec},
    }


def workload(arrival: Arrival) -> Object:
    workload_class = arrival.workload_class
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(workload_class.cpu)}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": f"{arrival.queue}-{workload_class.name}-{arrival.number}",
            "namespace": "default",
            "labels": {"class": workload_class.name},
        },
        "spec": {
            "queueName": arrival.queue,
            "priority": workload_class.priority,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
                }
            ],
        },
    }
