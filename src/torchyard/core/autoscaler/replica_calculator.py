"""A metric of pods against its target: the replicas it asks for, as upstream's replica calculator counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity
from torchyard.api.workload import autoscaler_messages as messages

TOLERANCE = 0.1
# Types of metrics that the resource metrics API can answer, and where each says what it wants.
_SOURCES = {"Resource": "resource", "ContainerResource": "containerResource"}


class MetricUnavailable(YardError):
    """What is to be measured cannot be; the message says why."""

    code = messages.NO_METRIC


@dataclass(frozen=True, slots=True)
class MetricProposal:
    """The replicas a metric asks for, its name in messages, and how the status shows it."""

    replicas: int
    metric: str
    current: Object


def evaluate_metric(spec: Object, pods: list[Object], usage: Mapping[str, Object], current: int) -> MetricProposal:
    """`usage` holds the figures of pods by name, as the metrics API has them; `current` replicas are wanted now."""
    kind = spec["type"]
    if kind not in _SOURCES:
        raise MetricUnavailable(f"{kind} metrics are not served by this plane: use Resource or ContainerResource")
    source = spec[_SOURCES[kind]]
    resource, target, container = source["name"], source["target"], source.get("container", "")
    live = [pod for pod in pods if _is_live(pod)]
    used = {pod["metadata"]["name"]: _used(pod, usage, resource, container) for pod in live}
    known = {name: amount for name, amount in used.items() if amount is not None}
    if not known:
        raise MetricUnavailable(
            f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        )
    average = sum(known.values()) // len(known)
    shown: Object = {"averageValue": str(Quantity(average))}
    if target.get("averageUtilization") is not None:
        asked = {pod["metadata"]["name"]: _requested(pod, resource, container) for pod in live}
        wanted = {name: amount * target["averageUtilization"] / 100 for name, amount in asked.items()}
        shown["averageUtilization"] = 100 * sum(known.values()) // sum(asked[name] for name in known)
        metric = messages.utilization(resource)
    else:
        each = quantity.parse(target["averageValue"]).nano
        wanted = {pod["metadata"]["name"]: float(each) for pod in live}
        metric = messages.usage(resource)
    idle = {pod["metadata"]["name"] for pod in live if not _is_ready(pod)}
    found: Object = {"name": resource, "current": shown}
    if container:
        found["container"] = container
    return MetricProposal(_replicas(used, wanted, idle, current), metric, {"type": kind, _SOURCES[kind]: found})


def _replicas(used: dict[str, int | None], wanted: dict[str, float], idle: set[str], current: int) -> int:
    """Pods that are not ready count as using nothing; those without figures in favour of staying as it is."""
    measured = {name: amount for name, amount in used.items() if amount is not None and name not in idle}
    if not measured:
        return current
    ratio = sum(measured.values()) / sum(wanted[name] for name in measured)
    missing = [name for name, amount in used.items() if amount is None and name not in idle]
    waiting = idle if ratio > 1 else set()
    if missing or waiting:
        guesses = {name: 0.0 if ratio > 1 else wanted[name] for name in missing} | dict.fromkeys(waiting, 0.0)
        again = (sum(measured.values()) + sum(guesses.values())) / sum(wanted[name] for name in (*measured, *guesses))
        if (again > 1) != (ratio > 1):
            return current
        ratio, count = again, len(measured) + len(guesses)
    else:
        count = len(measured)
    if abs(ratio - 1) <= TOLERANCE:
        return current
    found = math.ceil(ratio * count - 1e-9)
    return current if (ratio < 1) != (found < current) else found


def _is_live(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _used(pod: Object, usage: Mapping[str, Object], resource: str, container: str) -> int | None:
    """In billionths; None where nothing was measured."""
    figures = (usage.get(pod["metadata"]["name"]) or {}).get("containers") or ()
    amounts = [
        quantity.parse(one["usage"][resource]).nano
        for one in figures
        if resource in (one.get("usage") or {}) and container in ("", one["name"])
    ]
    return sum(amounts) if amounts else None


def _requested(pod: Object, resource: str, container: str) -> int:
    total = 0
    for one in pod["spec"]["containers"]:
        if container not in ("", one["name"]):
            continue
        asked = ((one.get("resources") or {}).get("requests") or {}).get(resource)
        if asked is None:
            where = f"container {one['name']} of Pod {pod['metadata']['name']}"
            raise MetricUnavailable(f"failed to get {resource} utilization: missing request for {resource} in {where}")
        total += quantity.parse(asked).nano
    if not total:
        raise MetricUnavailable(f"failed to get {resource} utilization: no container asks for {resource}")
    return total
