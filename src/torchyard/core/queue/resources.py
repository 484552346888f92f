"""Quantities of flavors and resources as integers of 1/1000, so that sums are exact and fast; and how they print."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod.totals import pod_total
from torchyard.api.quantity import Format, Quantity

FlavorResource = tuple[str, str]  # flavor, resource
FlavorResourceQuantities = dict[FlavorResource, int]

_NANO_PER_MILLI = 10**6
_BINARY_RESOURCES = ("memory", "ephemeral-storage", "hugepages-")


def to_milli(value: str | int | float) -> int:
    return quantity.parse(value).milli


@lru_cache(maxsize=4096)  # thousands of workloads request the same
def format_quantity(resource: str, amount: int) -> str:
    format = Format.BINARY if resource.startswith(_BINARY_RESOURCES) else Format.DECIMAL
    return str(Quantity(amount * _NANO_PER_MILLI, format))


def add_quantities(total: FlavorResourceQuantities, more: Mapping[FlavorResource, int]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount


def pod_requests(spec: Object) -> dict[str, int]:
    """What one pod of a template requests. A container's limit is its request where it has no request."""
    with_requests = {
        **spec,
        "containers": [_default_requests(container) for container in spec.get("containers") or ()],
        "initContainers": [_default_requests(container) for container in spec.get("initContainers") or ()],
    }
    totals = sorted(pod_total(with_requests, "requests").items())
    return {resource: amount.milli for resource, amount in totals if amount.nano}


def _default_requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    return {**container, "resources": {"requests": {**resources["limits"], **(resources.get("requests") or {})}}}
