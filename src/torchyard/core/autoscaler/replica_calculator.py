"""The replicas that one metric asks for, calculated as upstream's replica calculator does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active, is_ready
from torchyard.api.quantity import Quantity
from torchyard.api.workload import autoscaler_messages as messages

TOLERANCE = 0.1
# Metric types that the resource metrics API can answer, and the field of each that holds its source.
_SOURCES = {"Resource": "resource", "ContainerResource": "containerResource"}


class MetricUnavailable(YardError):
    """The metric cannot be evaluated; the message says why."""

    code = messages.NO_METRIC


@dataclass(frozen=True, slots=True)
class MetricProposal:
    """The replicas that a metric asks for, its name in messages, and its value in the status."""

    replicas: int
    metric: str
    current: Object


def evaluate_metric(spec: Object, pods: list[Object], usage: Mapping[str, Object], current: int) -> MetricProposal:
    """Evaluate one metric. `usage` holds PodMetrics by pod name; `current` is the current number of replicas."""
    kind = spec["type"]
    if kind not in _SOURCES:
        raise MetricUnavailable(messages.unsupported_metric(kind))
    source = spec[_SOURCES[kind]]
    resource, target, container = source["name"], source["target"], source.get("container", "")
    live = [pod for pod in pods if is_active(pod)]
    used = {pod["metadata"]["name"]: _used(pod, usage, resource, container) for pod in live}
    measured = {name: amount for name, amount in used.items() if amount is not None}
    if not measured:
        raise MetricUnavailable(messages.no_metrics(resource))
    average = sum(measured.values()) // len(measured)
    value: Object = {"averageValue": str(Quantity(average))}
    if target.get("averageUtilization") is not None:
        requested = {pod["metadata"]["name"]: _requested(pod, resource, container) for pod in live}
        targets = {name: amount * target["averageUtilization"] / 100 for name, amount in requested.items()}
        value["averageUtilization"] = 100 * sum(measured.values()) // sum(requested[name] for name in measured)
        metric = messages.utilization(resource)
    else:
        per_pod = quantity.parse(target["averageValue"]).nano
        targets = {pod["metadata"]["name"]: float(per_pod) for pod in live}
        metric = messages.usage(resource)
    idle = {pod["metadata"]["name"] for pod in live if not is_ready(pod)}
    status: Object = {"name": resource, "current": value}
    if container:
        status["container"] = container
    return MetricProposal(_replicas(used, targets, idle, current), metric, {"type": kind, _SOURCES[kind]: status})


def _replicas(used: dict[str, int | None], targets: dict[str, float], idle: set[str], current: int) -> int:
    """Unready pods count as unused. Pods without metrics count in favour of no change."""
    measured = {name: amount for name, amount in used.items() if amount is not None and name not in idle}
    if not measured:
        return current
    ratio = sum(measured.values()) / sum(targets[name] for name in measured)
    missing = [name for name, amount in used.items() if amount is None and name not in idle]
    waiting = idle if ratio > 1 else set()
    if missing or waiting:
        guesses = {name: 0.0 if ratio > 1 else targets[name] for name in missing} | dict.fromkeys(waiting, 0.0)
        adjusted = (sum(measured.values()) + sum(guesses.values())) / sum(
            targets[name] for name in (*measured, *guesses)
        )
        if (adjusted > 1) != (ratio > 1):
            return current
        ratio, count = adjusted, len(measured) + len(guesses)
    else:
        count = len(measured)
    if abs(ratio - 1) <= TOLERANCE:
        return current
    proposed = math.ceil(ratio * count - 1e-9)
    return current if (ratio < 1) != (proposed < current) else proposed


def _used(pod: Object, usage: Mapping[str, Object], resource: str, container: str) -> int | None:
    """In billionths; None if the container has no metrics."""
    usages = (usage.get(pod["metadata"]["name"]) or {}).get("containers") or ()
    amounts = [
        quantity.parse(container_usage["usage"][resource]).nano
        for container_usage in usages
        if resource in (container_usage.get("usage") or {}) and container in ("", container_usage["name"])
    ]
    return sum(amounts) if amounts else None


def _requested(pod: Object, resource: str, container: str) -> int:
    total = 0
    for spec in pod["spec"]["containers"]:
        if container not in ("", spec["name"]):
            continue
        request = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
        if request is None:
            raise MetricUnavailable(messages.missing_request(resource, spec["name"], pod["metadata"]["name"]))
        total += quantity.parse(request).nano
    if not total:
        raise MetricUnavailable(messages.no_requests(resource))
    return total
