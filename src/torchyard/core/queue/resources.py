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
_CPU, _MILLI = "cpu", 1000
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
    """What one pod requests. As in Kueue, only cpu is counted in thousandths; the rest is rounded up to whole units."""
    totals = sorted(pod_total(spec, "requests").items())
    return {resource: amount.milli if resource == _CPU else amount.value * _MILLI for resource, amount in totals}
